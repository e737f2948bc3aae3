//! Settings of each kind of component.
use std::collections::BTreeMap;

use super::{helm_repo, image, names::Kind, section::Section};
use crate::{
    diagnostic::Severity,
    model::{
        DockerBuild, HELM_CHART, HelmChart, Job, KUBERNETES_MANIFEST, KubernetesManifest,
        Kustomize, MAX_RETRIES, OperationRole, Options, OutputField, Pulumi, SANDBOX_CONTEXTS,
        Spec, TERRAFORM_MODULE, is_built_in,
    },
};

/// Reads the settings of a kind. An unknown kind belongs to a plugin.
pub fn read(section: &Section<'_>, kind: &str) -> Spec {
    // Every plugin of these kinds gets the settings that the format defines.
    let is_defined = [KUBERNETES_MANIFEST, HELM_CHART].contains(&kind) || is_built_in(kind);
    if !is_defined && section.reader.plugins.iter().any(|plugin| plugin.name == kind) {
        return plugin(section);
    }
    match kind {
        TERRAFORM_MODULE => Spec::TerraformModule,
        HELM_CHART => Spec::HelmChart(helm_chart(section)),
        KUBERNETES_MANIFEST => Spec::KubernetesManifest(kubernetes_manifest(section)),
        kind if crate::model::CONTAINER_IMAGE.contains(&kind) => Spec::Image(image::read(section)),
        "docker_build" => Spec::DockerBuild(DockerBuild {
            dockerfile: section.required("dockerfile"),
            target: section.string("target"),
            build_args: section.strings("build_args"),
        }),
        "pulumi" => {
            let mut config = section.texts("config");
            // The sandbox has the key `pulumi_config` instead of `config`.
            config.extend(section.texts("pulumi_config"));
            Spec::Pulumi(Pulumi { runtime: section.string("runtime").unwrap_or_default(), config })
        }
        "job" => Spec::Job(Job {
            image_url: section.required("image_url"),
            tag: section.required("tag"),
            cmd: section.strings("cmd"),
            args: section.strings("args"),
        }),
        _ => plugin(section),
    }
}

fn plugin(section: &Section<'_>) -> Spec {
    let own: Vec<&str> = section.table.keys().map(String::as_str).collect();
    section.ignore(&own);
    Spec::Plugin
}

fn helm_chart(section: &Section<'_>) -> HelmChart {
    let helm_repo = section.section("helm_repo").map(helm_repo::read);
    let has_source =
        ["public_repo", "connected_repo"].iter().any(|key| section.entry(key).is_some());
    if has_source && helm_repo.is_some() {
        let message = "the chart has two sources: `helm_repo` and a repository".to_string();
        section.error("helm_repo", "two_sources", message, "keep one of them");
    }
    let mut values_files = Vec::new();
    for file in section.sections("values_file") {
        values_files.extend(file.content("contents"));
        values_files.extend(file.content("source"));
        file.finish();
    }
    HelmChart {
        chart_name: section.required_text("chart_name"),
        namespace: section.text("namespace"),
        helm_repo,
        values: section.texts("values"),
        values_files,
        storage_driver: section.text("storage_driver"),
        take_ownership: section.flag("take_ownership").unwrap_or_default(),
        outputs: outputs(section),
    }
}

fn kubernetes_manifest(section: &Section<'_>) -> KubernetesManifest {
    let kustomize = section.section("kustomize").map(|inner| {
        let kustomize = Kustomize {
            path: inner.required("path"),
            patches: inner.strings("patches"),
            enable_helm: inner.flag("enable_helm").unwrap_or_default(),
            files: BTreeMap::new(),
        };
        inner.finish();
        kustomize
    });
    let written = section.text("manifest").is_some();
    if written == kustomize.is_some() {
        let (code, message, remedy) = match written {
            true => ("two_sources", "`manifest` and `kustomize` are both set", "keep one of them"),
            false => (
                "missing_key",
                "`manifest` or `kustomize` is missing",
                "add manifest = \"./manifests/NAME.yaml\"",
            ),
        };
        section.error("manifest", code, message.to_string(), remedy);
    }
    KubernetesManifest {
        namespace: section.text("namespace"),
        manifest: section.content("manifest"),
        kustomize,
        take_ownership: section.flag("take_ownership").unwrap_or_default(),
        outputs: outputs(section),
    }
}

fn outputs(section: &Section<'_>) -> BTreeMap<String, OutputField> {
    let Some(inner) = section.section("outputs") else { return BTreeMap::new() };
    let mut outputs = BTreeMap::new();
    for name in inner.table.keys() {
        let Some(field) = inner.section(name) else { continue };
        field.required("name");
        let output = OutputField {
            kind: field.required("kind"),
            name: field.text("name").unwrap_or_default(),
            namespace: field.text("namespace"),
            field: field.required("field"),
        };
        field.finish();
        outputs.insert(name.clone(), output);
    }
    inner.finish();
    outputs
}

/// Reads the settings that every kind accepts.
pub fn options(section: &Section<'_>) -> Options {
    section.ignore(&["description", "display_name", "label"]);
    section.mentioned("role", Kind::Role, Severity::Warning);
    Options {
        max_auto_retries: retries(section),
        timeout_ms: section.duration("timeout"),
        deploy_timeout_ms: section.duration("deploy_timeout"),
        toggleable: section.flag("toggleable").unwrap_or_default(),
        default_enabled: section.flag("default_enabled"),
        skip_noops: section.flag("skip_noops"),
        auto_approve_on_policies_passing: section
            .flag("auto_approve_on_policies_passing")
            .unwrap_or_default(),
        kubernetes_context: context(section),
        operation_roles: operation_roles(section, "operation_roles"),
        labels: section.texts("labels"),
    }
}

/// Reads `kubernetes_context`: a declared context, or an implicit name of the sandbox's cluster.
pub fn context(section: &Section<'_>) -> Option<String> {
    let name = section.string("kubernetes_context")?;
    if !SANDBOX_CONTEXTS.contains(&name.as_str()) {
        section.mentioned("kubernetes_context", Kind::Context, Severity::Error);
    }
    Some(name)
}

/// Reads `max_auto_retries`. A value out of range is a warning.
pub fn retries(section: &Section<'_>) -> Option<i64> {
    let setting = section.integer("max_auto_retries");
    if setting.is_some_and(|most| !(0..=MAX_RETRIES).contains(&most)) {
        let message = format!("`max_auto_retries` must be between 0 and {MAX_RETRIES}");
        let remedy = "use a value in this range; otherwise the nearest valid value applies";
        section.warning("max_auto_retries", "bad_value", message, remedy);
    }
    setting
}

const OPERATIONS: [&str; 6] =
    ["provision", "reprovision", "deprovision", "deploy", "teardown", "trigger"];

/// Reads `[[operation_roles]]` of a part, or `[[rules]]` of `operation_roles.toml`.
pub fn operation_roles(section: &Section<'_>, key: &str) -> Vec<OperationRole> {
    let mut roles = Vec::new();
    for inner in section.sections(key) {
        inner.required("role");
        inner.mentioned("role", Kind::Role, Severity::Warning);
        inner.one_of("operation", "operation", &OPERATIONS);
        roles.push(OperationRole {
            at: inner.place(),
            principal: inner.string("principal"),
            operation: inner.required("operation"),
            role: inner.text("role").unwrap_or_default(),
        });
        inner.finish();
    }
    roles
}
