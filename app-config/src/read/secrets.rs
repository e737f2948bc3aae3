//! `secrets.toml` or `secrets/*.toml`: what the customer gives to the stack and to nobody else.
use super::{reader::Reader, section::Section};
use crate::{diagnostic::Severity, model::Secret};

pub fn read(reader: &Reader<'_>) -> Vec<Secret> {
    let (single, many) = reader.either("secrets");
    let mut secrets = Vec::new();
    if let Some(document) = single {
        let section = reader.section(&document);
        secrets.extend(section.sections("secret").into_iter().map(secret));
        section.finish();
    }
    secrets.extend(many.iter().map(|document| secret(reader.section(document))));
    if !secrets.is_empty() {
        let message = "secrets are read but not handed to jobs by this release".to_string();
        let says = (message, "a template that reads `.nuon.secrets` fails until a later release");
        reader.about(Severity::Warning, "not_yet", "secrets.toml", says);
    }
    secrets
}

fn secret(section: Section<'_>) -> Secret {
    let secret = Secret {
        name: section.required("name"),
        description: section.text("description"),
        required: section.flag("required").unwrap_or_default(),
        auto_generate: section.flag("auto_generate").unwrap_or_default(),
        has_default: section.text("default").is_some(),
    };
    let clashes = [
        (secret.auto_generate && secret.required, "auto_generate` and `required"),
        (secret.has_default && secret.required, "default` and `required"),
        (secret.has_default && secret.auto_generate, "default` and `auto_generate"),
    ];
    for (_, which) in clashes.iter().filter(|(clash, _)| *clash) {
        let message = format!("a secret cannot have both `{which}`");
        section.error("name", "secret_clash", message, "keep one of them");
    }
    section.ignore(&["display_name", "format", "user_configurable", "kubernetes_sync", "labels"]);
    section.ignore(&["kubernetes_secret_namespace", "kubernetes_secret_name"]);
    section.ignore(&["kubernetes_sync_targets"]);
    section.finish();
    secret
}
