//! `runbooks/*.toml`: ordered lists of actions and deploys.
use super::{names::Kind, reader::Reader, section::Section};
use crate::{
    diagnostic::Severity,
    model::{Runbook, RunbookStep},
};

pub fn read(reader: &Reader<'_>) -> Vec<Runbook> {
    let mut runbooks = Vec::new();
    for document in &reader.documents("runbooks") {
        let section = reader.section(document);
        let runbook = Runbook {
            at: section.place(),
            name: section.declared(Kind::Runbook),
            file: section.file().to_string(),
            description: section.string("description").unwrap_or_default(),
            readme: section.content("readme"),
            steps: section.steps().into_iter().map(step).collect(),
        };
        if runbook.steps.is_empty() {
            let message = "this runbook has no steps".to_string();
            section.warning("steps", "no_steps", message, "add a [[steps]] table");
        }
        section.ignore(&["display_name", "inputs", "input", "labels", "label"]);
        section.finish();
        runbooks.push(runbook);
    }
    runbooks.sort_by(|a, b| (&a.name, &a.file).cmp(&(&b.name, &b.file)));
    runbooks
}

const STEPS: [&str; 3] = ["action", "command", "component_deploy"];

fn step(section: Section<'_>) -> RunbookStep {
    let step = RunbookStep {
        at: section.place(),
        name: section.string("name").unwrap_or_default(),
        kind: section.required("type"),
        action: section.mentioned("action_name", Kind::Action, Severity::Warning),
        component: section.mentioned("component_name", Kind::Component, Severity::Warning),
        command: section.text("command"),
        inline_contents: section.content("inline_contents"),
        env_vars: section.variables("env_vars"),
        timeout_ms: section.duration("timeout"),
    };
    section.one_of("type", "step type", &STEPS);
    section.ignore(&["description", "inputs", "labels", "role", "skip_noops"]);
    // This release does not act on the role, but still reports a role that does not exist.
    section.mentioned("role", Kind::Role, Severity::Warning);
    section.ignore(&["public_repo", "connected_repo", "enable_kube_config", "kubernetes_context"]);
    section.finish();
    step
}
