//! Fields of the kinds that a cluster has, from its OpenAPI document.
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// Prefix of a reference to a definition.
const REFERENCE: &str = "#/definitions/";
/// Definition of the schema of a custom kind.
const CUSTOM: &str = ".JSONSchemaProps";

/// Definitions of an OpenAPI document, and those of kinds.
pub(crate) struct Schemas {
    definitions: Map<String, Value>,
    /// Names of definitions by `apiVersion` and `kind`.
    kinds: BTreeMap<(String, String), String>,
}

impl Schemas {
    pub(crate) fn new(mut document: Value) -> Schemas {
        let definitions = document["definitions"].take();
        let definitions = definitions.as_object().cloned().unwrap_or_default();
        let mut kinds = BTreeMap::new();
        for (name, definition) in &definitions {
            let of = definition["x-kubernetes-group-version-kind"].as_array();
            for kind in of.into_iter().flatten() {
                let text = |key: &str| kind[key].as_str().unwrap_or_default();
                let version = match text("group") {
                    "" => text("version").to_owned(),
                    group => format!("{group}/{}", text("version")),
                };
                kinds.insert((version, text("kind").to_owned()), name.clone());
            }
        }
        Schemas { definitions, kinds }
    }

    /// Returns an object in JSON without the fields that its kind does not have, and their names.
    /// Other texts stay unchanged.
    pub(crate) fn without_newer_fields(&self, body: &[u8]) -> (Vec<u8>, BTreeSet<String>) {
        let mut dropped = BTreeSet::new();
        let Ok(mut object) = serde_json::from_slice::<Value>(body) else {
            return (body.to_vec(), dropped);
        };
        let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
        let kind = text("kind");
        if let Some(name) = self.kinds.get(&(text("apiVersion"), kind.clone())) {
            self.prune(&mut object, name, &kind, &mut dropped);
        }
        match dropped.is_empty() {
            true => (body.to_vec(), dropped),
            false => (object.to_string().into_bytes(), dropped),
        }
    }

    fn prune(&self, value: &mut Value, name: &str, kind: &str, dropped: &mut BTreeSet<String>) {
        // The document does not describe these alternatives.
        let alternatives = name.strip_suffix("OrArray").or_else(|| name.strip_suffix("OrBool"));
        if let Some(one) = alternatives.filter(|one| one.ends_with(CUSTOM)) {
            if let Some(items) = value.as_array_mut() {
                items.iter_mut().for_each(|item| self.prune(item, one, kind, dropped));
            } else {
                self.prune(value, one, kind, dropped);
            }
            return;
        }
        // An old API server reads this default as `null`, which is not a text.
        if name.ends_with(CUSTOM) && value["default"] == "" {
            value.as_object_mut().and_then(|schema| schema.remove("default"));
            dropped.insert(format!("{kind} default"));
        }
        if let Some(schema) = self.definitions.get(name) {
            self.prune_by(value, schema, kind, dropped);
        }
    }

    fn prune_by(
        &self,
        value: &mut Value,
        schema: &Value,
        kind: &str,
        dropped: &mut BTreeSet<String>,
    ) {
        if let Some(name) = schema["$ref"].as_str().and_then(|name| name.strip_prefix(REFERENCE)) {
            return self.prune(value, name, kind, dropped);
        }
        match value {
            Value::Array(items) => {
                items
                    .iter_mut()
                    .for_each(|item| self.prune_by(item, &schema["items"], kind, dropped));
            }
            Value::Object(fields) => {
                if let Some(known) = schema["properties"].as_object() {
                    fields.retain(|field, value| match known.get(field) {
                        Some(schema) => {
                            self.prune_by(value, schema, kind, dropped);
                            true
                        }
                        None => {
                            dropped.insert(format!("{kind} {field}"));
                            false
                        }
                    });
                } else if schema["additionalProperties"].is_object() {
                    let schema = &schema["additionalProperties"];
                    fields.values_mut().for_each(|one| self.prune_by(one, schema, kind, dropped));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schemas() -> Schemas {
        let kind = |group: &str, version: &str, kind: &str| json!([{ "group": group, "version": version, "kind": kind }]);
        Schemas::new(json!({ "definitions": {
            "v1.Service": {
                "x-kubernetes-group-version-kind": kind("", "v1", "Service"),
                "properties": {
                    "apiVersion": {}, "kind": {}, "spec": { "$ref": "#/definitions/v1.ServiceSpec" },
                    "labels": { "additionalProperties": { "type": "string" } },
                },
            },
            "v1.ServiceSpec": { "properties": {
                "ports": { "items": { "properties": { "port": {} } } },
            } },
            "v1.Definition": {
                "x-kubernetes-group-version-kind": kind("x.io", "v1", "Definition"),
                "properties": {
                    "apiVersion": {}, "kind": {}, "schema": { "$ref": "#/definitions/v1.JSONSchemaProps" },
                },
            },
            "v1.JSONSchemaProps": { "properties": {
                "default": {},
                "items": { "$ref": "#/definitions/v1.JSONSchemaPropsOrArray" },
                "properties": { "additionalProperties": { "$ref": "#/definitions/v1.JSONSchemaProps" } },
            } },
        } }))
    }

    fn pruned(object: Value) -> (Value, Vec<String>) {
        let (body, dropped) = schemas().without_newer_fields(object.to_string().as_bytes());
        (serde_json::from_slice(&body).unwrap(), dropped.into_iter().collect())
    }

    #[test]
    fn only_unknown_fields_are_dropped() {
        let (object, dropped) = pruned(json!({
            "apiVersion": "v1", "kind": "Service", "labels": { "any": "a" },
            "spec": { "newer": 1, "ports": [{ "port": 1, "later": 2 }] },
        }));
        let expected = json!({
            "apiVersion": "v1", "kind": "Service", "labels": { "any": "a" },
            "spec": { "ports": [{ "port": 1 }] },
        });
        assert_eq!(
            (object, dropped.as_slice()),
            (expected, &["Service later".to_owned(), "Service newer".to_owned()][..])
        );
        // and an object of another kind stays
        let other = json!({ "apiVersion": "y.io/v1", "kind": "Service", "newer": 1 });
        assert_eq!(pruned(other.clone()), (other, vec![]));
    }

    #[test]
    fn an_empty_default_of_a_custom_kind_is_dropped() {
        let schema = |a: Value| {
            json!({
                "apiVersion": "x.io/v1", "kind": "Definition",
                "schema": { "properties": { "default": a } },
            })
        };
        let (object, dropped) = pruned(schema(json!({ "default": "" })));
        assert_eq!((object, dropped.len()), (schema(json!({})), 1));
        assert_eq!(pruned(schema(json!({ "default": "a" }))).1, Vec::<String>::new());
        // also below the alternatives of a list
        let (object, _) = pruned(schema(json!({ "items": [{ "default": "" }], "new": 1 })));
        assert_eq!(object, schema(json!({ "items": [{}] })));
        let (object, _) = pruned(schema(json!({ "items": { "default": "" } })));
        assert_eq!(object, schema(json!({ "items": {} })));
    }
}
