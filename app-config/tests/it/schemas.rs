//! JSON Schema of every file kind: generated from `format/`, stored in `schemas/app-config/`, and
//! checked against the reader and real directories.
use std::{collections::BTreeMap, fs, path::Path};

use app_config::{File, Tree, schema, survey};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::format;
use crate::sample;
use crate::support;

use format::{components::*, supporting::*, work::*};
use sample::{PLACES, samples};

fn generated<T: JsonSchema>(kind: &str) -> (String, Value) {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut generated = generator.into_root_schema_for::<T>().to_value();
    generated["$id"] = format!("https://stead.dev/schemas/app-config/{kind}.json").into();
    if let Some(variants) = generated.get_mut("oneOf").and_then(Value::as_array_mut) {
        let known: Vec<Value> =
            variants.iter().map(|variant| variant["properties"]["type"]["const"].clone()).collect();
        variants.push(json!({
            "description": "A type of a plugin. Only the plugin knows its keys.",
            "properties": {
                "name": {"type": "string"},
                "type": {"not": {"enum": known}, "type": "string"},
            },
            "required": ["name", "type"],
            "type": "object",
        }));
    }
    (kind.to_string(), generated)
}

fn all() -> BTreeMap<String, Value> {
    BTreeMap::from([
        generated::<Action>("action"),
        generated::<Branch>("branch"),
        generated::<BreakGlass>("break-glass"),
        generated::<Component>("component"),
        generated::<Input>("input"),
        generated::<InputGroup>("input-group"),
        generated::<Inputs>("inputs"),
        generated::<Install>("install"),
        generated::<Installer>("installer"),
        generated::<Installs>("installs"),
        generated::<KubernetesContexts>("kubernetes-contexts"),
        generated::<Metadata>("metadata"),
        generated::<OperationRoles>("operation-roles"),
        generated::<Permissions>("permissions"),
        generated::<Policies>("policies"),
        generated::<Policy>("policy"),
        generated::<Role>("role"),
        generated::<Runbook>("runbook"),
        generated::<Runner>("runner"),
        generated::<Sandbox>("sandbox"),
        generated::<Secret>("secret"),
        generated::<Secrets>("secrets"),
        generated::<Stack>("stack"),
    ])
}

/// `UPDATE_GOLDEN=1` writes the current schemas. Review the diff as a vendor would read it.
#[test]
fn the_schemas_match_their_golden_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/app-config");
    let all = all();
    for (kind, generated) in &all {
        let (path, text) = (folder.join(format!("{kind}.json")), format!("{generated:#}\n"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&path, &text).unwrap();
            // The served schemas are compiled in, so they change with the next build.
            continue;
        }
        assert_eq!(fs::read_to_string(&path).unwrap_or_default(), text, "{}", path.display());
        assert_eq!(schema(kind), Some(text.as_str()), "{kind} is not served");
    }
    assert_eq!(app_config::SCHEMAS.len(), all.len());
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let schemas = files.filter(|file| file.extension().is_some_and(|is| is == "json"));
    assert_eq!(schemas.count(), all.len());
}

/// The reader must know every key of each schema. Each file has all keys of its kind.
#[test]
fn the_reader_knows_every_key_of_the_schemas() {
    let all = all();
    assert_eq!(PLACES.len(), all.len());
    for (kind, path, text) in samples(|kind| all[kind].clone()) {
        let mut app = Tree::default();
        app.insert(path, File { bytes: text.clone().into(), executable: false }).unwrap();
        let findings = survey(&app, &[]).diagnostics;
        let unknown: Vec<_> = findings.iter().filter(|f| f.code == "unknown_key").collect();
        assert!(unknown.is_empty(), "{kind}: {unknown:?}\n{text}");
    }
}

/// Returns the schema of a file in an app directory.
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
        .map(|(kind, generated)| (kind, jsonschema::validator_for(&generated).unwrap()))
        .collect();
    let (mut valid, mut wrong) = (0, Vec::new());
    for app in fs::read_dir(corpus.join("apps")).unwrap() {
        let app = app.unwrap().path();
        for (path, file) in support::tree(&app).iter().filter(|(path, _)| path.ends_with(".toml")) {
            let Some(kind) = kind_of(path) else { continue };
            let value: Value = toml::from_slice(&file.bytes).unwrap();
            if value.as_object().is_some_and(Map::is_empty) {
                continue;
            }
            valid += 1;
            for error in schemas[kind].iter_errors(&value) {
                wrong.push(format!(
                    "{}/{path}: {error} at {}",
                    app.display(),
                    error.instance_path()
                ));
            }
        }
    }
    println!("schemas: {valid} valid files");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
