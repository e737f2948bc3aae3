//! Details of a plan: the changed fields of each object with their values. Values of Secrets are
//! sensitive.

use schemas::plugin::{AttributeDetails, DetailValue};
use serde_json::Value;

use crate::{
    fields::{self, Sides},
    object::ObjectRef,
};

/// Largest details of a plan in bytes. A result has at most 7 MiB, and the runner shows less.
pub const LIMIT: usize = 4 << 20;
/// Annotation with a copy of the whole object, which can contain the data of a Secret.
const LAST_APPLIED: &str = "metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]";
/// Fields of a Secret that contain none of its data.
const PUBLIC_OF_SECRET: [&str; 7] = [
    "apiVersion",
    "kind",
    "type",
    "immutable",
    "metadata.name",
    "metadata.namespace",
    "metadata.labels",
];

/// Object before and after an apply.
pub struct ObjectChange<'c> {
    pub reference: &'c ObjectRef,
    /// Live object. `None` if it does not exist.
    pub before: Option<&'c Value>,
    /// Object after the apply. `None` if the apply deletes it.
    pub after: Option<&'c Value>,
    /// Paths of the values that the server chooses at the apply.
    pub chosen: &'c [String],
    /// Paths of the immutable fields, whose change replaces the object.
    pub immutable: &'c [String],
}

/// Returns the changed fields of an object.
pub fn of(change: &ObjectChange<'_>) -> Vec<AttributeDetails> {
    let (before, after) =
        (change.before.map(fields::normalize), change.after.map(fields::normalize));
    let found = fields::changes(before.as_ref(), after.as_ref());
    found.into_iter().map(|(path, sides)| field(change, path, sides)).collect()
}

/// Returns only the fields that the manifest of an object contains. The server completes the others.
pub fn of_manifest(change: &ObjectChange<'_>) -> Vec<AttributeDetails> {
    let mut found = of(change);
    found.retain(|one| one.after.is_some());
    found.push(AttributeDetails {
        path: "other fields".into(),
        before: None,
        after: Some(DetailValue::KnownAfterApply),
        replaces: false,
    });
    found
}

fn field(change: &ObjectChange<'_>, path: String, (before, after): Sides<'_>) -> AttributeDetails {
    let is_sensitive = is_sensitive(change.reference, &path);
    let shown = |value: &Value| match is_sensitive {
        true => DetailValue::Sensitive,
        false => DetailValue::of(value),
    };
    let is_below = |paths: &[String]| fields::is_below(&path, paths);
    let is_chosen = before.is_none() && is_below(change.chosen);
    let after = after.map(|value| match is_chosen && !is_sensitive {
        true => DetailValue::KnownAfterApply,
        false => shown(value),
    });
    let replaces = is_below(change.immutable);
    AttributeDetails { before: before.map(shown), after, replaces, path }
}

/// Returns whether a field can contain the data of a Secret.
fn is_sensitive(reference: &ObjectRef, path: &str) -> bool {
    if path == LAST_APPLIED {
        return true;
    }
    reference.is_secret() && !fields::is_below(path, &PUBLIC_OF_SECRET.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reference(kind: &str) -> ObjectRef {
        ObjectRef {
            api_version: "v1".into(),
            kind: kind.into(),
            namespace: Some("shop".into()),
            name: "web".into(),
        }
    }

    fn shown(kind: &str, before: Option<Value>, after: Option<Value>) -> Value {
        let reference = reference(kind);
        let (before, after) = (before.as_ref(), after.as_ref());
        let change =
            ObjectChange { reference: &reference, before, after, chosen: &[], immutable: &[] };
        serde_json::to_value(of(&change)).unwrap()
    }

    #[test]
    fn changed_fields_have_both_values() {
        let before = json!({ "metadata": { "uid": "u" }, "spec": { "replicas": 1, "old": true } });
        let after = json!({ "metadata": { "uid": "v" }, "spec": { "replicas": 2, "new": [1] } });
        assert_eq!(
            shown("Deployment", Some(before), Some(after)),
            json!([
                { "path": "spec.new", "after": { "value": [1] } },
                { "path": "spec.old", "before": { "value": true } },
                { "path": "spec.replicas", "before": { "value": 1 }, "after": { "value": 2 } },
            ])
        );
    }

    #[test]
    fn only_the_keys_of_a_secret_are_shown() {
        let last = "kubectl.kubernetes.io/last-applied-configuration";
        let secret = |value: &str| {
            json!({ "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
                "metadata": { "labels": { "app": "web" },
                              "annotations": { last: value, "note": value } },
                "data": { "password": value }, "stringData": { "token": value } })
        };
        for (before, after) in [
            (None, Some(secret("HIDDEN-1"))),
            (Some(secret("HIDDEN-1")), Some(secret("HIDDEN-2"))),
            (Some(secret("HIDDEN-1")), None),
            (
                Some(json!({ "data": "HIDDEN-1" })),
                Some(json!({ "data": null, "extra": ["HIDDEN-2"] })),
            ),
        ] {
            let text = shown("Secret", before, after).to_string();
            assert!(!text.contains("HIDDEN") && text.contains("sensitive"), "{text}");
        }
        let created = shown("Secret", None, Some(secret("HIDDEN"))).to_string();
        assert!(created.contains("data.password") && created.contains("stringData.token"));
        assert!(created.contains("\"Opaque\"") && created.contains("\"web\""), "{created}");
        // A copy of a Secret can be in the annotation of any object.
        let copied = json!({ "metadata": { "annotations": { last: "HIDDEN" } } });
        assert!(!shown("ConfigMap", None, Some(copied)).to_string().contains("HIDDEN"));
    }

    #[test]
    fn chosen_and_immutable_fields_are_marked() {
        let reference = reference("Job");
        let after = json!({ "spec": { "selector": { "uid": "a" }, "parallelism": 2 } });
        let before = json!({ "spec": { "parallelism": 1 } });
        let change = ObjectChange {
            reference: &reference,
            before: Some(&before),
            after: Some(&after),
            chosen: &["spec.selector.uid".into()],
            immutable: &["spec.parallelism".into()],
        };
        assert_eq!(
            serde_json::to_value(of(&change)).unwrap(),
            json!([
                { "path": "spec.parallelism", "before": { "value": 1 }, "after": { "value": 2 },
                  "replaces": true },
                { "path": "spec.selector.uid", "after": "known_after_apply" },
            ])
        );
        let change = ObjectChange { chosen: &["spec.selector".into()], ..change };
        assert_eq!(serde_json::to_value(&of(&change)[1]).unwrap()["after"], "known_after_apply");
        let manifest = serde_json::to_value(of_manifest(&change)).unwrap();
        assert_eq!(manifest[2]["after"], "known_after_apply");
    }
}
