//! Compares the output of `inspect` for real app directories with facts that were collected
//! independently.
use std::collections::BTreeSet;

use app_config::{inspect, survey};
use serde_json::Value;

use crate::support;

/// Keys of the facts that have the same shape in `inspect`.
const FACTS: [&str; 19] = [
    "/name",
    "/metadata",
    "/sandbox",
    "/runner",
    "/stack",
    "/components",
    "/edges",
    "/layers",
    "/cycle",
    "/inputs",
    "/secrets",
    "/actions",
    "/runbooks",
    "/policies",
    "/permissions",
    "/break_glass_roles",
    "/installs",
    "/templates/toml/variables",
    "/templates/files/variables",
];

#[test]
fn every_real_directory_is_inspected_as_its_facts() {
    let Some(corpus) = support::corpus() else { return };
    let facts = support::json(&corpus.join("facts.json"));
    let (mut equal, mut wrong) = (0, Vec::new());
    for (app, expected) in facts.as_object().unwrap() {
        let tree = support::tree(&corpus.join("apps").join(app));
        let found = inspect(app, &tree, &survey(&tree, &[]));
        let before = wrong.len();
        for fact in FACTS {
            let (expected, found) = (expected.pointer(fact), found.pointer(fact));
            if expected.is_none() || expected != found {
                wrong.push(format!("{app} {fact}\n  {}", difference(expected, found)));
            }
        }
        equal += usize::from(wrong.len() == before);
    }
    println!("facts: {equal} of {} directories equal", facts.as_object().unwrap().len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_named_file_of_a_real_directory_is_resolved_as_its_facts() {
    let Some(corpus) = support::corpus() else { return };
    let facts = support::json(&corpus.join("facts.json"));
    for (app, expected) in facts.as_object().unwrap() {
        let reading = survey(&support::tree(&corpus.join("apps").join(app)), &[]);
        let refs = expected["file_refs"].as_array().unwrap().iter();
        let expected: BTreeSet<[Option<&str>; 3]> =
            refs.map(|r| ["file", "ref", "resolved"].map(|key| r[key].as_str())).collect();
        let found = reading.config.file_refs.iter();
        let found: BTreeSet<[Option<&str>; 3]> = found
            .map(|r| [Some(r.file.as_str()), Some(r.reference.as_str()), r.resolved.as_deref()])
            .collect();
        assert_eq!(found, expected, "{app}");
    }
}

fn difference(expected: Option<&Value>, found: Option<&Value>) -> String {
    if let (Some(Value::Object(wanted)), Some(Value::Object(object))) = (expected, found) {
        let keys: BTreeSet<&String> = wanted.keys().chain(object.keys()).collect();
        let key = keys.into_iter().find(|key| wanted.get(*key) != object.get(*key));
        return match key {
            Some(key) => format!("{key}: {}", difference(wanted.get(key), object.get(key))),
            None => String::new(),
        };
    }
    if let (Some(Value::Array(wanted)), Some(Value::Array(items))) = (expected, found) {
        let at = wanted.iter().zip(items).position(|(a, b)| a != b);
        if let Some(at) = at {
            return format!("[{at}] {}", difference(wanted.get(at), items.get(at)));
        }
    }
    format!("expected {expected:?}\n  found    {found:?}")
}
