//! `policies.toml` or `policies/*.toml`: rules about plans and clusters.
use super::{names::Kind, reader::Reader, section::Section};
use crate::{diagnostic::Severity, model::Policy};

pub fn read(reader: &Reader<'_>) -> Vec<Policy> {
    let (single, many) = reader.either("policies");
    let mut policies = Vec::new();
    if let Some(document) = single {
        let section = reader.section(&document);
        policies.extend(section.sections("policy").into_iter().map(policy));
        section.finish();
    }
    policies.extend(many.iter().map(|document| policy(reader.section(document))));
    policies
}

const TYPES: [&str; 12] = [
    "container_image",
    "docker_build",
    "external_image",
    "helm_chart",
    "kubernetes_cluster",
    "kubernetes_manifest",
    "pulumi",
    "runner_job_action_workflow",
    "runner_job_helm_deploy",
    "runner_job_terraform_deploy",
    "sandbox",
    "terraform_module",
];

fn policy(section: Section<'_>) -> Policy {
    let policy = Policy {
        at: section.place(),
        kind: section.required("type"),
        engine: section.one_of("engine", "policy engine", &["kyverno", "opa"]),
        components: components(&section),
        contents: section.content("contents"),
    };
    section.one_of("type", "policy type", &TYPES);
    section.ignore(&["name", "description", "labels", "mode"]);
    section.finish();
    policy
}

/// Components that the policy applies to. `*` means all.
fn components(section: &Section<'_>) -> Vec<String> {
    if section.strings("components").iter().any(|name| name == "*") {
        return section.strings("components");
    }
    section.mentions("components", Kind::Component, Severity::Warning)
}
