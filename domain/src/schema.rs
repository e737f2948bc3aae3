//! Golden test of the JSON Schema of every event, which is generated from the Rust type.
use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde_json::{Map, Value};

use crate::{
    access::Access, actor::Actor, app::App, build::Build, component::Component, decider::Decider,
    digest::Digest, enrolment::Enrolment, ids, install::Install, job::Job, name::Name,
    plugin::Plugin, run::Run, runner::Runner, subject::Subject, testing::golden, webhook::Webhook,
};

macro_rules! string_schemas {
    ($($name:ty = $pattern:expr;)*) => {$(
        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern })
            }
        }
    )*};
}

const ULID: &str = "[0-7][0-9A-HJKMNP-TV-Z]{25}";

fn id(prefix: &str) -> String {
    format!("^{prefix}{ULID}$")
}

string_schemas! {
    ids::AppId = id(ids::AppId::PREFIX);
    ids::ComponentId = id(ids::ComponentId::PREFIX);
    ids::BuildId = id(ids::BuildId::PREFIX);
    ids::InstallId = id(ids::InstallId::PREFIX);
    ids::RunId = id(ids::RunId::PREFIX);
    ids::StepId = id(ids::StepId::PREFIX);
    ids::JobId = id(ids::JobId::PREFIX);
    ids::ExecutionId = id(ids::ExecutionId::PREFIX);
    ids::RunnerId = id(ids::RunnerId::PREFIX);
    ids::SessionId = id(ids::SessionId::PREFIX);
    ids::PrincipalId = id(ids::PrincipalId::PREFIX);
    ids::TokenId = id(ids::TokenId::PREFIX);
    ids::EndpointId = id(ids::EndpointId::PREFIX);
    Actor = format!("^(prn_{ULID}|rnr_{ULID}|policy:.+|timer:.+|system)$");
    Digest = "^sha256:[0-9a-f]{64}$";
}

/// Returns the schema of each event of an aggregate, with the event's verb.
fn schemas<D: Decider>() -> Vec<(String, Map<String, Value>)>
where
    D::Event: JsonSchema,
{
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut all = settings.into_generator().into_root_schema_for::<D::Event>().to_value();
    never_null(&mut all);
    let variants = all["oneOf"].as_array().unwrap().iter();
    variants
        .map(|variant| {
            let verb = variant["properties"]["type"]["const"].as_str().unwrap();
            let mut schema = Map::new();
            schema.insert("$schema".into(), all["$schema"].clone());
            schema.insert("title".into(), format!("{}.{verb}", D::NAME).into());
            schema.extend(variant.as_object().unwrap().clone());
            (verb.to_string(), schema)
        })
        .collect()
}

/// Removes null from the schema of optional fields, because events omit absent fields.
fn never_null(schema: &mut Value) {
    let null = |kind: &Value| *kind == "null" || kind["type"] == "null";
    match schema {
        Value::Object(keys) => {
            keys.retain(|key, value| key != "default" || !value.is_null());
            keys.values_mut().for_each(never_null);
            for key in ["type", "anyOf"] {
                let Some(Value::Array(kinds)) = keys.get_mut(key) else { continue };
                kinds.retain(|kind| !null(kind));
                if let ([only], true) = (&kinds[..], key == "type") {
                    let only = only.clone();
                    keys.insert(key.into(), only);
                } else if let [Value::Object(only)] = &kinds[..] {
                    let only = only.clone();
                    keys.remove(key);
                    for (key, value) in only {
                        keys.entry(key).or_insert(value);
                    }
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(never_null),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[track_caller]
fn assert_schemas_match_goldens<D: Decider>()
where
    D::Event: JsonSchema,
{
    for (verb, schema) in schemas::<D>() {
        let directory = format!("events/{}.{verb}", D::NAME);
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        golden(&format!("{directory}/1.schema.json"), &text);

        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../schemas");
        let example = std::fs::read(format!("{example}/{directory}/1.example.json")).unwrap();
        let example: Map<String, Value> = serde_json::from_slice(&example).unwrap();
        let has_schema = |key: &String| schema["properties"].get(key).is_some();
        assert!(
            example.keys().all(has_schema),
            "{directory}: the example has a field that the schema does not define"
        );
        let required = schema["required"].as_array().unwrap();
        let is_in_example = |key: &Value| example.contains_key(key.as_str().unwrap());
        assert!(
            required.iter().all(is_in_example),
            "{directory}: the example lacks a field that the schema requires"
        );
    }
}

#[test]
fn every_example_follows_the_schema_of_its_event() {
    assert_schemas_match_goldens::<Access>();
    assert_schemas_match_goldens::<App>();
    assert_schemas_match_goldens::<Build>();
    assert_schemas_match_goldens::<Component>();
    assert_schemas_match_goldens::<Enrolment>();
    assert_schemas_match_goldens::<Install>();
    assert_schemas_match_goldens::<Job>();
    assert_schemas_match_goldens::<Name>();
    assert_schemas_match_goldens::<Plugin>();
    assert_schemas_match_goldens::<Run>();
    assert_schemas_match_goldens::<Runner>();
    assert_schemas_match_goldens::<Subject>();
    assert_schemas_match_goldens::<Webhook>();
}
