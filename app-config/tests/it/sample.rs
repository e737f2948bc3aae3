//! Sample values for a schema.
use serde_json::{Map, Value, json};

/// A value with every key of a schema.
pub fn sample(schema: &Value, defs: &Value) -> Value {
    if let Some(name) = schema["$ref"].as_str() {
        let named = &defs[name.rsplit('/').next().unwrap()];
        if schema.get("properties").is_none() {
            return sample(named, defs);
        }
        let mut both = sample(named, defs);
        let own = without_ref(schema);
        both.as_object_mut().unwrap().extend(sample(&own, defs).as_object().unwrap().clone());
        return both;
    }
    if let Some(one) = schema.get("const") {
        return one.clone();
    }
    for key in ["anyOf", "oneOf", "enum"] {
        if let Some(first) = schema[key].as_array().and_then(|all| all.first()) {
            return if key == "enum" { first.clone() } else { sample(first, defs) };
        }
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str());
    match kind.unwrap_or("object") {
        "string" => json!("x"),
        "boolean" => json!(true),
        "integer" | "number" => json!(1),
        "array" => json!([sample(&schema["items"], defs)]),
        _ => {
            let own = schema["properties"].as_object().into_iter().flatten();
            let pairs = own.map(|(key, value)| (key.clone(), sample(value, defs)));
            Value::Object(pairs.collect::<Map<_, _>>())
        }
    }
}

fn without_ref(schema: &Value) -> Value {
    let mut own = schema.as_object().unwrap().clone();
    own.remove("$ref");
    Value::Object(own)
}

/// Each schema with the path of a file that it describes.
pub const PLACES: [(&str, &str); 23] = [
    ("action", "actions/x.toml"),
    ("branch", "branch.toml"),
    ("break-glass", "break_glass.toml"),
    ("input", "inputs/x.toml"),
    ("input-group", "input_groups/x.toml"),
    ("inputs", "inputs.toml"),
    ("install", "installs/x.toml"),
    ("installer", "installer.toml"),
    ("installs", "installs.toml"),
    ("kubernetes-contexts", "kubernetes_contexts.toml"),
    ("metadata", "metadata.toml"),
    ("operation-roles", "operation_roles.toml"),
    ("permissions", "permissions.toml"),
    ("policies", "policies.toml"),
    ("policy", "policies/x.toml"),
    ("role", "permissions/x.toml"),
    ("runbook", "runbooks/x.toml"),
    ("runner", "runner.toml"),
    ("secret", "secrets/x.toml"),
    ("secrets", "secrets.toml"),
    ("stack", "stack.toml"),
    ("component", "components/x.toml"),
    ("sandbox", "sandbox.toml"),
];

/// Files with every key of their schema, for each kind of file; one per variant.
pub fn samples(schemas: impl Fn(&str) -> Value) -> Vec<(&'static str, &'static str, String)> {
    let mut samples = Vec::new();
    for (kind, path) in PLACES {
        let schema = schemas(kind);
        let variants = schema["oneOf"].as_array().cloned().unwrap_or_else(|| vec![schema.clone()]);
        for variant in variants {
            let mut sample = sample(&variant, &schema["$defs"]);
            if kind == "sandbox" {
                sample["type"] = json!("pulumi");
            }
            samples.push((kind, path, toml::to_string(&sample).unwrap()));
        }
    }
    samples
}
