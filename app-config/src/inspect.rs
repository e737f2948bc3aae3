//! Describes a directory as one JSON object: names, counts, dependencies, and the variables that
//! its templates name.
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::{
    model::{Action, AppConfig, Component, Input, Role},
    read::Reading,
    refs::{Graph, Reads, declared_graph},
    tree::Tree,
};

mod variables;

pub use self::variables::{Variables, variables};

/// Keys of a component's file that are shown as written.
const SHOWN: [&str; 12] = [
    "chart_name",
    "default_enabled",
    "deploy_timeout",
    "drift_schedule",
    "kubernetes_context",
    "max_auto_retries",
    "namespace",
    "runtime",
    "terraform_version",
    "timeout",
    "toggleable",
    "var_name",
];

/// Tables that name a component's source, shown as written.
const SOURCES: [&str; 5] = ["aws_ecr", "connected_repo", "helm_repo", "public", "public_repo"];

pub fn inspect(name: &str, app: &Tree, reading: &Reading) -> Value {
    let config = &reading.config;
    let graph = declared_graph(config);
    let used = variables(app);
    json!({
        "name": name,
        "metadata": {
            "version": non_empty(&config.metadata.version),
            "display_name": config.metadata.display_name,
            "description": config.metadata.description,
        },
        "sandbox": sandbox(config),
        "runner": {
            "runner_type": config.runner.as_ref().and_then(|runner| non_empty(&runner.runner_type)),
            "helm_driver": config.runner.as_ref().and_then(|runner| runner.helm_driver.clone()),
            "env_vars": config.runner.iter().flat_map(|r| r.env_vars.keys()).collect::<Vec<_>>(),
        },
        "stack": {
            "type": config.stack.as_ref().and_then(|stack| non_empty(&stack.stack_type)),
            "custom_nested_stacks": config.stack.as_ref().map_or(0, |s| s.custom_nested_stacks),
        },
        "components": components(config, &graph),
        "edges": edges(&graph),
        "layers": graph.layers,
        "cycle": graph.cycle,
        "cycles": graph.cycles,
        "inputs": inputs(config),
        "secrets": secrets(config),
        "actions": actions(config, &graph),
        "runbooks": {
            "count": config.runbooks.len(),
            "list": config.runbooks.iter().map(|runbook| json!({
                "name": runbook.name,
                "steps": runbook.steps.iter().map(|step| &step.kind).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
        },
        "policies": policies(config),
        "permissions": permissions(config),
        "break_glass_roles": config.roles.iter().filter(|role| is_break_glass(role)).count(),
        "installs": config.installs.iter().map(|install| &install.name).collect::<Vec<_>>(),
        "templates": {
            "toml": {"variables": used.settings},
            "files": {"variables": used.files},
        },
        "file_refs": config.file_refs,
        "diagnostics": reading.diagnostics,
    })
}

/// Returns `None` for an empty string, which counts as absent.
fn non_empty(word: &str) -> Option<&str> {
    Some(word).filter(|word| !word.is_empty())
}

fn sandbox(config: &AppConfig) -> Value {
    let settings = config.sandbox.as_ref().map(|sandbox| &sandbox.module.settings);
    let get = |key: &str| settings.and_then(|settings| settings.get(key));
    let keys = |key: &str| -> Vec<String> {
        get(key).and_then(Value::as_object).into_iter().flat_map(Map::keys).cloned().collect()
    };
    json!({
        "kind": get("type").and_then(Value::as_str).unwrap_or("terraform"),
        "terraform_version": get("terraform_version"),
        "repo": get("public_repo").or_else(|| get("connected_repo")),
        "vars": keys("vars"),
        "var_files": config.sandbox.as_ref().map_or(0, |sandbox| sandbox.module.var_files.len()),
        "pulumi_config": keys("pulumi_config"),
    })
}

fn components(config: &AppConfig, graph: &Graph) -> Value {
    let list = config.components.iter().map(|one| component(graph, one));
    json!({
        "count": config.components.len(),
        "by_type": count(config.components.iter().map(|one| one.module.kind.clone())),
        "list": list.collect::<Vec<_>>(),
    })
}

fn component(graph: &Graph, component: &Component) -> Value {
    let node = graph.components.get(&component.name);
    let inferred: BTreeSet<&String> = node
        .into_iter()
        .flat_map(|node| {
            let read = node.reads.components.keys();
            let read = read.filter(|name| node.dependencies.contains(*name));
            // A component that iterates over all components depends on more than its templates
            // name.
            let over_all = node.dependencies.iter().filter(|_| node.reads.all_components);
            read.chain(over_all.filter(|name| !component.dependencies.contains(name)))
        })
        .collect();
    let settings = &component.module.settings;
    let mut shown = json!({
        "name": component.name,
        "type": component.module.kind,
        "file": component.file,
        "deps": graph.dependencies(&component.name),
        "deps_declared": component.dependencies.iter().collect::<BTreeSet<_>>(),
        "deps_inferred": inferred,
        "source": source(settings),
    });
    for key in SHOWN {
        if let Some(value) = settings.get(key) {
            shown[key] = value.clone();
        }
    }
    shown
}

/// Source of a component. A manifest is shown as `file` or `inline`, without its text.
fn source(settings: &Value) -> Value {
    let mut source = Map::new();
    for key in SOURCES {
        if let Some(table) = settings.get(key) {
            source.insert(key.into(), table.clone());
        }
    }
    if let Some(path) = settings.get("kustomize").and_then(|kustomize| kustomize.get("path")) {
        source.insert("kustomize".into(), json!({"path": path}));
    }
    if let Some(manifest) = settings.get("manifest").and_then(Value::as_str) {
        let place = if manifest.trim_start().starts_with("./") { "file" } else { "inline" };
        source.insert("manifest".into(), place.into());
    }
    Value::Object(source)
}

fn edges(graph: &Graph) -> Vec<[&String; 2]> {
    let edges = graph
        .components
        .iter()
        .flat_map(|(name, node)| node.dependencies.iter().map(move |below| [name, below]));
    edges.collect()
}

fn inputs(config: &AppConfig) -> Value {
    let named = |keep: &dyn Fn(&Input) -> bool| -> BTreeSet<&String> {
        config.inputs.iter().filter(|input| keep(input)).map(|input| &input.name).collect()
    };
    json!({
        "count": config.inputs.len(),
        "names": named(&|_| true),
        "groups": config.input_groups.iter().map(|group| &group.name).collect::<BTreeSet<_>>(),
        "required": named(&|input| input.required),
        "sensitive": named(&|input| input.sensitive),
        "with_default": named(&|input| input.default.is_some()),
        "types": count(config.inputs.iter().map(|input| input.kind.name().to_string())),
    })
}

fn secrets(config: &AppConfig) -> Value {
    let generated = config.secrets.iter().filter(|secret| secret.auto_generate);
    json!({
        "count": config.secrets.len(),
        "names": config.secrets.iter().map(|secret| &secret.name).collect::<BTreeSet<_>>(),
        "auto_generate": generated.map(|secret| &secret.name).collect::<BTreeSet<_>>(),
    })
}

fn actions(config: &AppConfig, graph: &Graph) -> Value {
    let triggers = config.actions.iter().flat_map(trigger_words);
    let list = config.actions.iter().map(|action| {
        json!({
            "name": action.name,
            "file": action.file,
            "steps": action.steps.len(),
            "triggers": trigger_words(action),
            "component_refs": graph.actions.get(&action.name).map(outputs_of).unwrap_or_default(),
        })
    });
    json!({
        "count": config.actions.len(),
        "steps": config.actions.iter().map(|action| action.steps.len()).sum::<usize>(),
        "triggers": count(triggers),
        "list": list.collect::<Vec<_>>(),
    })
}

/// Triggers as written, including unknown and older spellings.
fn trigger_words(action: &Action) -> Vec<String> {
    let written = action.settings.get("triggers").and_then(Value::as_array);
    let words = written.into_iter().flatten().filter_map(|trigger| trigger.get("type")?.as_str());
    words.map(str::to_string).collect()
}

fn outputs_of(reads: &Reads) -> Vec<&String> {
    let read = reads.components.iter().filter(|(_, outputs)| !outputs.is_empty());
    read.map(|(name, _)| name).collect()
}

fn policies(config: &AppConfig) -> Value {
    let types = config.policies.iter().map(|policy| match &policy.engine {
        Some(engine) => format!("{}/{engine}", policy.kind),
        None => policy.kind.clone(),
    });
    json!({"count": config.policies.len(), "types": count(types)})
}

/// Number of roles per role type of `permissions.toml` or `permissions/`.
fn permissions(config: &AppConfig) -> Value {
    let roles = config.roles.iter().filter(|role| !is_break_glass(role));
    count(roles.map(|role| role.word.clone()))
}

/// True if a file for break-glass roles declares the role.
fn is_break_glass(role: &Role) -> bool {
    role.file == "break_glass.toml" || role.file.starts_with("break_glass/")
}

fn count(words: impl IntoIterator<Item = String>) -> Value {
    let mut counts = BTreeMap::<String, u64>::new();
    for word in words {
        *counts.entry(word).or_default() += 1;
    }
    json!(counts)
}
