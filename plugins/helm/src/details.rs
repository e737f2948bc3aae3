//! Details of a plan: the changed fields with their values.

use schemas::plugin::{AttributeDetails, DetailValue};
use serde_json::{Value, json};
use stead_plugin_kubernetes::{
    details::{self, ObjectChange},
    fields,
    object::ObjectRef,
};

use crate::current::{Current, Details};

/// Replaces a value that changes at every render. It is often a generated password or a key.
const HIDDEN: &str = "(changes at every render)";

/// Object before and after an operation of Helm.
pub struct ReleasedObject<'o> {
    pub reference: &'o ObjectRef,
    /// Live object. `None` if it does not exist.
    pub before: Option<&'o Value>,
    pub after: &'o Value,
    /// Paths that change at every render.
    pub random: &'o [String],
}

/// Returns the changed fields. `after` is the result of a dry run, with its fields that the server
/// chooses.
pub fn of_result(object: &ReleasedObject<'_>, chosen: &[String]) -> Vec<AttributeDetails> {
    with_change(object, |change| details::of(&ObjectChange { chosen, ..*change }))
}

/// Returns the fields of a rendered text, which the server completes.
pub fn of_text(object: &ReleasedObject<'_>) -> Vec<AttributeDetails> {
    with_change(object, details::of_manifest)
}

fn with_change<R>(object: &ReleasedObject<'_>, of: impl FnOnce(&ObjectChange<'_>) -> R) -> R {
    let ReleasedObject { reference, before, after, random } = *object;
    let (before, after) = (before.map(|before| hidden(before, random)), hidden(after, random));
    let (before, after) = (before.as_ref(), Some(&after));
    of(&ObjectChange { reference, before, after, chosen: &[], immutable: &[] })
}

/// Returns an object without the values that change at every render.
fn hidden(object: &Value, random: &[String]) -> Value {
    let mut object = object.clone();
    for parts in random.iter().filter_map(|path| fields::parts(path)) {
        hide(&mut object, &parts);
    }
    object
}

fn hide(value: &mut Value, parts: &[&str]) {
    let Some((first, rest)) = parts.split_first() else {
        *value = json!(HIDDEN);
        return;
    };
    let inner = match value {
        Value::Object(members) => members.get_mut(*first),
        Value::Array(items) => match first.parse::<usize>() {
            Ok(at) => items.get_mut(at),
            Err(_) => items.iter_mut().find(|item| fields::is_item(item, first)),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    };
    if let Some(inner) = inner {
        hide(inner, rest);
    }
}

/// Returns the changes of the release itself: its chart and its revision. Values can contain
/// secrets, and their effects are in the objects.
pub fn of_release(current: &Current, details: &Details, chart: &str) -> Vec<AttributeDetails> {
    let shown = |value: Value| Some(DetailValue::of(&value));
    let mut fields = vec![];
    if details.chart != chart {
        let before = Some(&details.chart).filter(|chart| !chart.is_empty());
        fields.push(AttributeDetails {
            path: "chart".into(),
            before: before.and_then(|chart| shown(json!(chart))),
            after: shown(json!(chart)),
            replaces: false,
        });
    }
    fields.push(AttributeDetails {
        path: "revision".into(),
        before: current.release.as_ref().and_then(|release| shown(json!(release.version))),
        after: shown(json!(current.next_revision())),
        replaces: false,
    });
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(kind: &str) -> ObjectRef {
        ObjectRef {
            api_version: "v1".into(),
            kind: kind.into(),
            namespace: Some("shop".into()),
            name: "a".into(),
        }
    }

    #[test]
    fn values_that_change_at_every_render_are_hidden() {
        let object = |secret: &str| {
            json!({ "metadata": { "annotations": { "a/b": secret } }, "spec": { "template": {
                "containers": [{ "name": "x", "env": [{ "name": "P", "value": secret }] }],
                "args": ["a", secret] } } })
        };
        let random: Vec<String> =
            fields::differences(&object("HIDDEN-1"), &object("HIDDEN-2")).into_iter().collect();
        let (reference, after) = (&reference("Pod"), &object("HIDDEN-1"));
        let created = ReleasedObject { reference, before: None, after, random: &random };
        let text = serde_json::to_string(&of_text(&created)).unwrap();
        assert!(!text.contains("HIDDEN-1") && text.contains("\"name\":\"x\""), "{text}");
        assert_eq!(text.matches(HIDDEN).count(), 3, "{text}");
        let before = &object("HIDDEN-0");
        let changed = ReleasedObject { before: Some(before), ..created };
        assert_eq!(of_result(&changed, &[]), []);
    }

    #[test]
    fn values_of_secrets_are_in_no_detail() {
        let after = &json!({ "stringData": { "password": "HIDDEN" }, "data": { "b": "HIDDEN" } });
        let reference = &reference("Secret");
        let secret = ReleasedObject { reference, before: Some(after), after, random: &[] };
        for before in [None, Some(&json!({ "data": { "b": "HIDDEN-0" } }))] {
            let secret = ReleasedObject { before, ..secret };
            let text = format!("{:?}{:?}", of_text(&secret), of_result(&secret, &[]));
            assert!(!text.contains("HIDDEN") && text.contains("stringData"), "{text}");
        }
    }

    #[test]
    fn release_shows_chart_and_revision() {
        let details = Details { chart: "shop-1".into(), ..Details::default() };
        let of = |chart: &str| {
            let fields = of_release(&Current::default(), &details, chart);
            fields.into_iter().map(|field| field.path).collect::<Vec<_>>()
        };
        assert_eq!(of("shop-1"), ["revision"]);
        assert_eq!(of("shop-2"), ["chart", "revision"]);
    }
}
