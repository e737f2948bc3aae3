//! `secrets.toml` or `secrets/*.toml`: values that only the customer sets.
use std::collections::BTreeSet;

use super::{names::Kind, reader::Reader, section::Section};
use crate::{
    model::{AppConfig, Input, Secret, SyncTarget},
    refs::declared_graph,
};

pub fn read(reader: &Reader<'_>) -> Vec<Secret> {
    let (single, many) = reader.either("secrets");
    let mut secrets = Vec::new();
    if let Some(document) = single {
        let section = reader.section(&document);
        secrets.extend(section.sections("secret").into_iter().map(secret));
        section.finish();
    }
    secrets.extend(many.iter().map(|document| secret(reader.section(document))));
    secrets
}

fn secret(section: Section<'_>) -> Secret {
    let secret = Secret {
        at: section.place(),
        name: section.declared(Kind::Secret),
        display_name: section.text("display_name"),
        description: section.text("description"),
        required: section.flag("required").unwrap_or_default(),
        auto_generate: section.flag("auto_generate").unwrap_or_default(),
        default: section.text("default"),
        format: section.string("format"),
        kubernetes_sync: section.flag("kubernetes_sync").unwrap_or_default(),
        sync_targets: targets(&section),
    };
    let has_default = secret.default.is_some();
    let clashes = [
        (secret.auto_generate && secret.required, "auto_generate", "required"),
        (has_default && secret.required, "default", "required"),
        (has_default && secret.auto_generate, "default", "auto_generate"),
    ];
    for (_, key, other) in clashes.iter().filter(|(clash, _, _)| *clash) {
        let message = format!("`{key}` and `{other}` of a secret exclude each other");
        section.error(key, "secret_clash", message, "keep one of them");
    }
    if secret.kubernetes_sync && secret.sync_targets.is_empty() {
        let message = "`kubernetes_sync` requires a target secret in the cluster";
        let remedy = "add kubernetes_secret_namespace and kubernetes_secret_name";
        section.error("kubernetes_sync", "secret_clash", message.to_string(), remedy);
    }
    if let Some(format) = secret.format.as_deref().filter(|format| *format != "base64") {
        let message = format!("unknown secret format `{format}`");
        section.warning("format", "bad_value", message, "use base64, or omit `format`");
    }
    section.ignore(&["user_configurable", "labels"]);
    section.finish();
    secret
}

/// Returns the secrets as sensitive inputs. A deploy cannot do without a secret that the sandbox or a
/// component reads, so an install waits for it as for a required one.
pub fn inputs(config: &AppConfig) -> Vec<Input> {
    let graph = declared_graph(config);
    let components = graph.components.values().map(|node| &node.reads);
    let read: BTreeSet<&String> = components
        .chain([&graph.sandbox, &graph.runner])
        .flat_map(|reads| &reads.secrets)
        .collect();
    let input = |secret: &Secret| {
        let is_read = read.contains(&secret.name);
        Input { required: secret.required || is_read, ..secret.as_input() }
    };
    config.secrets.iter().map(input).collect()
}

/// Target of a secret in the cluster: the older pair of keys, or a list of targets.
fn targets(section: &Section<'_>) -> Vec<SyncTarget> {
    let mut targets = Vec::new();
    let name = section.text("kubernetes_secret_name");
    let namespace = section.text("kubernetes_secret_namespace");
    if let (Some(name), Some(namespace)) = (name, namespace) {
        targets.push(SyncTarget {
            at: section.place(),
            name,
            namespaces: vec![namespace.value],
            key: None,
        });
    }
    for inner in section.sections("kubernetes_sync_targets") {
        inner.required("name");
        targets.push(SyncTarget {
            at: inner.place(),
            name: inner.text("name").unwrap_or_default(),
            namespaces: inner.strings("namespaces"),
            key: inner.string("key"),
        });
        inner.ignore(&["namespace", "labels"]);
        inner.finish();
    }
    targets
}
