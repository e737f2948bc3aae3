//! The JSON Schema of every file kind: made from `format/`, kept in `schemas/app-config/`, true of
//! the reader and of real directories.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says no by panicking")]
use std::{collections::BTreeMap, fs, path::Path};

use app_config::{File, Tree, schema, survey};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

mod format;
mod support;

use format::{components::*, surroundings::*, work::*};

fn made<T: JsonSchema>(kind: &str) -> (String, Value) {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut made = generator.into_root_schema_for::<T>().to_value();
    made["$id"] = format!("https://stead.dev/schemas/app-config/{kind}.json").into();
    if let Some(variants) = made.get_mut("oneOf").and_then(Value::as_array_mut) {
        let known: Vec<Value> =
            variants.iter().map(|variant| variant["properties"]["type"]["const"].clone()).collect();
        variants.push(json!({
            "description": "A type of a plugin's: the plugin alone knows its keys.",
            "properties": {
                "name": {"type": "string"},
                "type": {"not": {"enum": known}, "type": "string"},
            },
            "required": ["name", "type"],
            "type": "object",
        }));
    }
    (kind.to_string(), made)
}

fn all() -> BTreeMap<String, Value> {
    BTreeMap::from([
        made::<Action>("action"),
        made::<Branch>("branch"),
        made::<BreakGlass>("break-glass"),
        made::<Component>("component"),
        made::<Input>("input"),
        made::<InputGroup>("input-group"),
        made::<Inputs>("inputs"),
        made::<Install>("install"),
        made::<Installer>("installer"),
        made::<Installs>("installs"),
        made::<KubernetesContexts>("kubernetes-contexts"),
        made::<Metadata>("metadata"),
        made::<OperationRoles>("operation-roles"),
        made::<Permissions>("permissions"),
        made::<Policies>("policies"),
        made::<Policy>("policy"),
        made::<Role>("role"),
        made::<Runbook>("runbook"),
        made::<Runner>("runner"),
        made::<Sandbox>("sandbox"),
        made::<Secret>("secret"),
        made::<Secrets>("secrets"),
        made::<Stack>("stack"),
    ])
}

/// `UPDATE_GOLDEN=1` writes what is true now; then read the difference as a vendor would.
#[test]
fn the_schemas_are_what_was_agreed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/app-config");
    let all = all();
    for (kind, made) in &all {
        let (path, text) = (folder.join(format!("{kind}.json")), format!("{made:#}\n"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&path, &text).unwrap();
            // What is served is inside of the program and known after the next build.
            continue;
        }
        assert_eq!(fs::read_to_string(&path).unwrap_or_default(), text, "{}", path.display());
        assert_eq!(schema(kind), Some(text.as_str()), "{kind} is not served");
    }
    assert_eq!(app_config::SCHEMAS.len(), all.len());
    assert_eq!(fs::read_dir(folder).unwrap().count(), all.len());
}

/// Each schema's keys, all at once, in a file of its kind: the reader knows every one of them.
#[test]
fn the_reader_knows_every_key_of_the_schemas() {
    let places = [
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
    assert_eq!(places.len(), all().len());
    for (kind, path) in places {
        let made = &all()[kind];
        let variants = made["oneOf"].as_array().cloned().unwrap_or_else(|| vec![made.clone()]);
        for variant in variants {
            let mut sample = sample(&variant, &made["$defs"]);
            if kind == "sandbox" {
                sample["type"] = json!("pulumi");
            }
            let text = toml::to_string(&sample).unwrap();
            let mut app = Tree::default();
            app.insert(path, File { bytes: text.clone().into(), executable: false }).unwrap();
            let findings = survey(&app, &[]).diagnostics;
            let unknown: Vec<_> = findings.iter().filter(|f| f.code == "unknown_key").collect();
            assert!(unknown.is_empty(), "{kind}: {unknown:?}\n{text}");
        }
    }
}

/// A value with every key of a schema.
fn sample(schema: &Value, defs: &Value) -> Value {
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

/// Which schema a file of a directory has.
fn kind_of(path: &str) -> Option<&'static str> {
    let (directory, inside) = path.split_once('/').unwrap_or(("", path));
    Some(match (directory, inside) {
        ("actions", _) => "action",
        ("branches", _) | ("", "branch.toml") => "branch",
        ("break_glass" | "permissions", _) => "role",
        ("components", _) => "component",
        ("inputs", _) => "input",
        ("input_groups", _) => "input-group",
        ("installs", _) => "install",
        ("policies", _) => "policy",
        ("runbooks", _) => "runbook",
        ("secrets", _) => "secret",
        ("", file) => {
            let stem = file.strip_suffix(".toml")?.replace('_', "-");
            return app_config::SCHEMAS.iter().map(|(kind, _)| *kind).find(|kind| *kind == stem);
        }
        _ => return None,
    })
}

#[test]
fn real_directories_are_valid_by_the_schemas() {
    let Some(corpus) = support::corpus() else { return };
    let schemas: BTreeMap<String, jsonschema::Validator> = all()
        .into_iter()
        .map(|(kind, made)| (kind, jsonschema::validator_for(&made).unwrap()))
        .collect();
    let (mut held, mut wrong) = (0, Vec::new());
    for app in fs::read_dir(corpus.join("apps")).unwrap() {
        let app = app.unwrap().path();
        for (path, file) in support::tree(&app).iter().filter(|(path, _)| path.ends_with(".toml")) {
            let Some(kind) = kind_of(path) else { continue };
            let value: Value = toml::from_slice(&file.bytes).unwrap();
            if value.as_object().is_some_and(Map::is_empty) {
                continue;
            }
            held += 1;
            for error in schemas[kind].iter_errors(&value) {
                wrong.push(format!(
                    "{}/{path}: {error} at {}",
                    app.display(),
                    error.instance_path()
                ));
            }
        }
    }
    println!("schemas: {held} files held");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
