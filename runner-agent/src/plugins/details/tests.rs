use schemas::plugin::Action;
use serde_json::json;

use super::*;
use crate::plugins::testing::TestSink;

/// Returns a sink that redacts two secrets.
fn redacting() -> TestSink {
    TestSink { secrets: &["hunter2", "4711"], ..TestSink::default() }
}

fn attribute(path: &str, after: Value) -> AttributeDetails {
    let after = Some(DetailValue::Value(after));
    AttributeDetails { path: path.into(), before: None, after, replaces: false }
}

fn details(address: &str, attributes: Vec<AttributeDetails>) -> ResourceDetails {
    ResourceDetails { address: address.into(), action: Action::Create, attributes, omitted: 0 }
}

#[test]
fn a_secret_is_redacted_wherever_it_is() {
    let long = format!("{}hunter2", "x".repeat(VALUE_BYTES - 3));
    let attributes = vec![
        attribute("a.hunter2", json!({ "hunter2": ["x", { "y": "hunter2" }] })),
        attribute("pin", json!(4711)),
        attribute("long", json!(long)),
    ];
    let output = details("hunter2", vec![attribute("", json!("hunter2"))]);
    let given = PlanDetails {
        resources: vec![details("a.hunter2", attributes)],
        outputs: vec![output],
        omitted: 0,
    };
    let prepared = prepare(given.clone(), &mut redacting()).unwrap();
    let text = serde_json::to_string(&prepared).unwrap();
    assert!(!text.contains("hun") && !text.contains("4711"), "{text}");
    assert_eq!(text.matches("***").count(), 8, "{text}");
    assert_eq!(prepare(given, &mut TestSink { withheld: true, ..redacting() }), None);
}

#[test]
fn long_details_are_cut_with_a_mark() {
    let long = json!("ä".repeat(VALUE_BYTES));
    let mut attributes = vec![attribute("long", long)];
    attributes.extend((0..MAX_ATTRIBUTES + 6).map(|n| attribute(&n.to_string(), json!(n))));
    let given = PlanDetails { resources: vec![details("a.b", attributes)], ..Default::default() };
    let prepared = prepare(given, &mut redacting()).unwrap();
    let resource = &prepared.resources[0];
    assert_eq!((resource.attributes.len(), resource.omitted), (MAX_ATTRIBUTES, 7));
    let Some(DetailValue::Truncated { text, size_bytes }) = &resource.attributes[0].after else {
        panic!("{resource:?}");
    };
    assert_eq!((text.len(), *size_bytes), (VALUE_BYTES, 2 * VALUE_BYTES as u64));

    let full = |n: usize| {
        let value = json!("x".repeat(VALUE_BYTES));
        details(&format!("a.{n}"), vec![attribute("x", value); 100])
    };
    let given = PlanDetails { resources: (0..5).map(full).collect(), ..Default::default() };
    let mut sink = redacting();
    let prepared = prepare(given, &mut sink).unwrap();
    assert_eq!((prepared.resources.len(), prepared.omitted), (2, 3));
    assert!(proof::canonical::json(&prepared).unwrap().len() <= DETAILS_BYTES);
    assert_eq!(
        sink.lines,
        ["the details of the plan are too long: they omit 3 resources and outputs"]
    );
}
