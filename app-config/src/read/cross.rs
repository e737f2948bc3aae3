//! What no file can be wrong about alone: names that two files take, references to nothing, cycles.
use std::collections::BTreeMap;

use super::reader::Reader;
use crate::{
    diagnostic::{Diagnostic, Severity},
    model::AppConfig,
    refs::{Reads, graph},
    text::{Origin, Text},
};

pub fn check(config: &AppConfig, reader: &Reader<'_>) {
    names(config, reader);
    declared(config, reader);
    references(config, reader);
    if let Some(cycle) = graph(config).cycle {
        let first = cycle.first().and_then(|name| config.component(name));
        let file = first.map(|component| component.file.clone()).unwrap_or_default();
        let message = format!("components depend on each other in a circle: {}", cycle.join(" → "));
        let remedy = "remove one of these dependencies, or one of the references between them";
        reader.about(Severity::Error, "cycle", &file, (message, remedy));
    }
}

fn names(config: &AppConfig, reader: &Reader<'_>) {
    let components = config.components.iter().map(|c| ("component", &c.name, c.file.as_str()));
    let actions = config.actions.iter().map(|a| ("action", &a.name, a.file.as_str()));
    let inputs = config.inputs.iter().map(|input| ("input", &input.name, "inputs.toml"));
    let mut taken: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for (what, name, file) in components.chain(actions).chain(inputs) {
        if name.is_empty() {
            continue;
        }
        if let Some(other) = taken.insert((what, name), file) {
            let message = format!("the {what} `{name}` is described twice, here and in {other}");
            reader.about(Severity::Error, "duplicate_name", file, (message, "rename one of them"));
        }
    }
}

fn declared(config: &AppConfig, reader: &Reader<'_>) {
    let known = |name: &str| config.component(name).is_some();
    let names: Vec<&str> = config.components.iter().map(|c| c.name.as_str()).collect();
    let remedy = format!("use one of: {}", names.join(", "));
    let unknown = |severity, file: &str, what: &str, name: &str| {
        let message = format!("{what} names the component `{name}`, which does not exist");
        reader.about(severity, "unknown_component", file, (message, &remedy));
    };
    for component in &config.components {
        for name in component.dependencies.iter().filter(|name| !known(name)) {
            unknown(Severity::Error, &component.file, "`dependencies`", name);
        }
    }
    for action in &config.actions {
        let triggers = action.triggers.iter().filter_map(|trigger| trigger.component.as_ref());
        for name in triggers.chain(&action.dependencies).filter(|name| !known(name)) {
            unknown(Severity::Error, &action.file, "the action", name);
        }
    }
    for policy in &config.policies {
        for name in policy.components.iter().filter(|name| !known(name) && *name != "*") {
            unknown(Severity::Warning, "policies.toml", "a policy", name);
        }
    }
    for install in &config.installs {
        for name in install.inputs.keys().filter(|name| config.input(name).is_none()) {
            let message = format!("this install gives the input `{name}`, which does not exist");
            let says = (message, "remove it, or declare the input");
            reader.about(Severity::Warning, "unknown_input", &install.file, says);
        }
    }
}

fn references(config: &AppConfig, reader: &Reader<'_>) {
    for component in &config.components {
        for text in &component.module.texts {
            text_refers(config, reader, text, Severity::Error);
        }
    }
    let sandbox = config.sandbox.iter().flat_map(|sandbox| &sandbox.module.texts);
    for text in sandbox {
        if let Some(reads) = text_refers(config, reader, text, Severity::Error)
            && let Some(name) = reads.components.keys().next()
        {
            let message = format!("the sandbox reads the component `{name}`, which comes after it");
            at(reader, Severity::Error, "sandbox_first", text, name, message, "move the value");
        }
    }
    for text in config.actions.iter().flat_map(|action| &action.texts) {
        text_refers(config, reader, text, Severity::Error);
    }
    for text in config.runner.iter().flat_map(|runner| runner.env_vars.values()) {
        text_refers(config, reader, text, Severity::Error);
    }
    // Nobody deploys these, so they cannot stop a version from being published.
    let readme = config.metadata.readme.iter();
    let runbooks = config.runbooks.iter().filter_map(|runbook| runbook.readme.as_ref());
    let roles = config.roles.iter().flat_map(|role| {
        let policies =
            role.policies.iter().flat_map(|p| [&p.managed_policy_name, &p.name, &p.contents]);
        let own = [&role.description, &role.display_name, &role.permissions_boundary];
        own.into_iter().chain(policies).flatten().chain([&role.name])
    });
    let policies = config.policies.iter().filter_map(|policy| policy.contents.as_ref());
    for text in readme.chain(runbooks).chain(roles).chain(policies) {
        text_refers(config, reader, text, Severity::Warning);
    }
}

fn text_refers(
    config: &AppConfig,
    reader: &Reader<'_>,
    text: &Text,
    severity: Severity,
) -> Option<Reads> {
    let reads = match Reads::of_one(text) {
        Ok(reads) => reads,
        Err(error) => {
            reader.note(Diagnostic {
                severity,
                code: "template",
                file: text.origin.file.clone(),
                line: error.line,
                column: error.column,
                message: format!("this template cannot be read: {}", error.message),
                remedy: "correct the template".to_string(),
            });
            return None;
        }
    };
    for name in reads.needed_components.iter().filter(|name| config.component(name).is_none()) {
        let message = format!("a template reads the component `{name}`, which does not exist");
        at(reader, severity, "unknown_component", text, name, message, "check the name");
    }
    for name in reads.needed_inputs.iter().filter(|name| config.input(name).is_none()) {
        let message = format!("a template reads the input `{name}`, which does not exist");
        at(reader, severity, "unknown_input", text, name, message, "declare it in inputs.toml");
    }
    Some(reads)
}

/// A finding where `name` first stands in a text.
fn at(
    reader: &Reader<'_>,
    severity: Severity,
    code: &'static str,
    text: &Text,
    name: &str,
    message: String,
    remedy: &str,
) {
    let Origin { file, line, column, .. } = text.origin.clone();
    let dotted = text.value.find(&format!(".{name}")).map(|at| at + 1);
    let before = &text.value[..dotted.or_else(|| text.value.find(name)).unwrap_or_default()];
    let lines = before.matches('\n').count() as u32;
    let within = before.rsplit('\n').next().unwrap_or_default().chars().count() as u32;
    let first = if lines == 0 { column } else { 1 };
    let (line, column, remedy) = (line + lines, first + within, remedy.to_string());
    reader.note(Diagnostic { severity, code, file, line, column, message, remedy });
}
