//! What a reading of real app directories reports, held against facts that were gathered apart.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says no by panicking")]
use std::collections::{BTreeMap, BTreeSet};

use app_config::{Reading, model::RolePurpose, refs::graph, survey};
use serde_json::{Value, json};

mod support;

#[test]
fn every_real_directory_is_read_as_the_facts_say() {
    let Some(corpus) = support::corpus() else { return };
    let facts = support::json(&corpus.join("facts.json"));
    let (mut held, mut wrong) = (0, Vec::new());
    for (app, expected) in facts.as_object().unwrap() {
        let reading = survey(&support::tree(&corpus.join("apps").join(app)), &[]);
        let expected = wanted(expected);
        for (fact, found) in found(&reading) {
            if expected[&fact] == found {
                held += 1;
            } else {
                wrong.push(format!(
                    "{app} {fact}\n  expected {}\n  found    {found}",
                    expected[&fact]
                ));
            }
        }
    }
    println!("facts: {held} held, {} did not", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The facts that this release reads, in one form.
fn wanted(facts: &Value) -> BTreeMap<String, Value> {
    let components: BTreeMap<&str, Value> = facts["components"]["list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| {
            let said = json!({"file": c["file"], "type": c["type"], "deps": c["deps"],
                "declared": c["deps_declared"], "version": c["terraform_version"]});
            (c["name"].as_str().unwrap(), said)
        })
        .collect();
    let actions: BTreeMap<&str, Value> = facts["actions"]["list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| {
            let refs = a["component_refs"].clone();
            let said = json!({"file": a["file"], "steps": a["steps"], "refs": refs});
            (a["name"].as_str().unwrap(), said)
        })
        .collect();
    let inputs = &facts["inputs"];
    let refs: BTreeSet<(String, String, Option<String>)> = facts["file_refs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| {
            let text = |key: &str| r[key].as_str().map(str::to_string);
            (text("file").unwrap(), text("ref").unwrap(), text("resolved"))
        })
        .collect();
    let runbooks: BTreeMap<&str, &Value> = facts["runbooks"]["list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| (r["name"].as_str().unwrap(), &r["steps"]))
        .collect();
    let custom: u64 = facts["permissions"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(key, _)| key.starts_with("custom"))
        .map(|(_, n)| n.as_u64().unwrap())
        .sum();
    BTreeMap::from([
        ("components".into(), json!(components)),
        ("layers".into(), facts["layers"].clone()),
        ("cycle".into(), facts["cycle"].clone()),
        ("actions".into(), json!(actions)),
        (
            "inputs".into(),
            json!({"names": inputs["names"], "required": inputs["required"],
            "sensitive": inputs["sensitive"], "groups": inputs["groups"],
            "with_default": inputs["with_default"], "types": inputs["types"]}),
        ),
        ("files".into(), json!(refs)),
        (
            "sandbox".into(),
            json!({"vars": facts["sandbox"]["vars"],
            "version": facts["sandbox"]["terraform_version"],
            "var_files": facts["sandbox"]["var_files"]}),
        ),
        (
            "runner".into(),
            json!({"env": facts["runner"]["env_vars"],
            "type": facts["runner"]["runner_type"], "helm": facts["runner"]["helm_driver"]}),
        ),
        ("secrets".into(), facts["secrets"]["names"].clone()),
        ("policies".into(), facts["policies"]["count"].clone()),
        ("runbooks".into(), json!(runbooks)),
        ("installs".into(), facts["installs"].clone()),
        ("break_glass".into(), facts["break_glass_roles"].clone()),
        ("custom_roles".into(), json!(custom)),
        (
            "stack".into(),
            json!({"type": facts["stack"]["type"],
            "nested": facts["stack"]["custom_nested_stacks"]}),
        ),
        ("metadata".into(), facts["metadata"]["display_name"].clone()),
    ])
}

fn found(reading: &Reading) -> BTreeMap<String, Value> {
    let config = &reading.config;
    let graph = graph(config);
    let components: BTreeMap<&str, Value> = config
        .components
        .iter()
        .map(|c| {
            let deps = graph.dependencies(&c.name);
            let declared: BTreeSet<&String> = c.dependencies.iter().collect();
            let said = json!({"file": c.file, "type": c.module.kind, "deps": deps,
                "declared": declared, "version": c.module.terraform_version});
            (c.name.as_str(), said)
        })
        .collect();
    let actions: BTreeMap<&str, Value> = config
        .actions
        .iter()
        .map(|a| {
            // The facts count reads of outputs only, not of a component's id.
            let read = graph.actions[&a.name].components.iter();
            let refs: Vec<&String> =
                read.filter(|(_, outputs)| !outputs.is_empty()).map(|(name, _)| name).collect();
            (a.name.as_str(), json!({"file": a.file, "steps": a.steps.len(), "refs": refs}))
        })
        .collect();
    let names = |keep: &dyn Fn(&app_config::model::Input) -> bool| -> Vec<&str> {
        config.inputs.iter().filter(|i| keep(i)).map(|i| i.name.as_str()).collect()
    };
    let groups: BTreeSet<&String> = config
        .input_groups
        .iter()
        .map(|g| &g.name)
        .chain(config.inputs.iter().filter_map(|i| i.group.as_ref()))
        .collect();
    let mut types: BTreeMap<&str, u64> = BTreeMap::new();
    config.inputs.iter().for_each(|i| *types.entry(i.kind.name()).or_default() += 1);
    let refs: BTreeSet<(String, String, Option<String>)> = config
        .file_refs
        .iter()
        .map(|r| (r.file.clone(), r.reference.clone(), r.resolved.clone()))
        .collect();
    let runbooks: BTreeMap<&str, Vec<&str>> = config
        .runbooks
        .iter()
        .map(|r| (r.name.as_str(), r.steps.iter().map(|s| s.kind.as_str()).collect()))
        .collect();
    let sandbox = config.sandbox.as_ref();
    let vars: Vec<&String> = sandbox.iter().flat_map(|s| s.module.vars.keys()).collect();
    let runner = config.runner.as_ref();
    let env: Vec<&String> = runner.iter().flat_map(|r| r.env_vars.keys()).collect();
    let secrets: BTreeSet<&String> = config.secrets.iter().map(|s| &s.name).collect();
    let roles = |purpose| config.roles.iter().filter(|r| r.purpose == purpose).count();
    let installs: Vec<&String> = config.installs.iter().map(|i| &i.name).collect();
    BTreeMap::from([
        ("components".into(), json!(components)),
        ("layers".into(), json!(graph.layers)),
        ("cycle".into(), json!(graph.cycle)),
        ("actions".into(), json!(actions)),
        (
            "inputs".into(),
            json!({"names": names(&|_| true), "required": names(&|i| i.required),
            "sensitive": names(&|i| i.sensitive), "groups": groups,
            "with_default": names(&|i| i.default.is_some()), "types": types}),
        ),
        ("files".into(), json!(refs)),
        (
            "sandbox".into(),
            json!({"vars": vars,
            "version": sandbox.and_then(|s| s.module.terraform_version.clone()),
            "var_files": sandbox.map_or(0, |s| s.module.var_files.len())}),
        ),
        (
            "runner".into(),
            json!({"env": env, "type": runner.map(|r| &r.runner_type),
            "helm": runner.and_then(|r| r.helm_driver.clone())}),
        ),
        ("secrets".into(), json!(secrets)),
        ("policies".into(), json!(config.policies.len())),
        ("runbooks".into(), json!(runbooks)),
        ("installs".into(), json!(installs)),
        ("break_glass".into(), json!(roles(RolePurpose::BreakGlass))),
        ("custom_roles".into(), json!(roles(RolePurpose::Custom))),
        (
            "stack".into(),
            json!({"type": config.stack.as_ref().map(|s| &s.stack_type),
            "nested": config.stack.as_ref().map_or(0, |s| s.custom_nested_stacks)}),
        ),
        ("metadata".into(), json!(config.metadata.display_name)),
    ])
}
