use domain::upcast::{Upcaster, Words};
use serde::Serialize;

use super::*;

/// A name that was taken, as a later program knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Later {
    Taken { by: String, why: String },
}

impl Event for Later {
    fn name(&self) -> &'static str {
        "name.taken"
    }
    fn version(&self) -> &'static str {
        "2"
    }
    const UPCASTERS: &'static [Upcaster] = &[Upcaster {
        event_type: "name.taken",
        version: "1",
        up: |mut old| {
            old["why"] = "nobody said".into();
            let again = serde_json::json!({"type": "taken", "by": "none", "why": "twice"});
            Ok([old, again]
                .map(|payload| Words { event_type: "name.taken", version: "2", payload })
                .into())
        },
    }];
}

fn raw<'a>(version: &'a str, payload: &'a str) -> Raw<'a> {
    Raw {
        position: 7,
        sequence: 3,
        at: Timestamp::UNIX_EPOCH,
        aggregate: "name",
        id: "install/acme",
        event_type: "name.taken",
        version,
        payload,
        metadata: r#"{"actor":"system"}"#,
    }
}

#[test]
fn an_older_version_is_folded_as_what_it_comes_to_today() {
    let mut facts = vec![];
    // A fold of today's crate has no name for the later program's fact: the text stands for it.
    let of = |id: String, Later::Taken { by, why }| {
        Fact::Name(id, NameEvent::Taken { owner: format!("{by}, {why}") })
    };
    raw("1", r#"{"type":"taken","by":"ins_1"}"#).say(of, &mut facts).unwrap();
    let by = |fact: &Recorded| match &fact.fact {
        Fact::Name(_, NameEvent::Taken { owner }) => owner.clone(),
        other => panic!("{other:?}"),
    };
    let told: Vec<_> = facts.iter().map(|fact| (fact.position, fact.sequence, by(fact))).collect();
    let expected = [(7, 3, "ins_1, nobody said".into()), (7, 3, "none, twice".into())];
    assert_eq!(told, expected);
}

#[test]
fn what_nobody_can_read_is_named_by_position_type_and_version() {
    for (version, payload, why) in [
        ("9", r#"{"type":"taken","owner":"ins_1"}"#, "reads name.taken in version 1 only"),
        ("1", r#"{"type":"taken"}"#, "missing field `owner`"),
    ] {
        let error = raw(version, payload).read(&mut vec![]).unwrap_err().to_string();
        let named = format!("position 7: name.taken version {version}: ");
        assert!(error.starts_with(&named) && error.contains(why), "{error}");
    }
}
