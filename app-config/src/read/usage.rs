//! Reads `operation_roles.toml`, `kubernetes_contexts.toml`, `installs.toml`, `installer.toml`, and
//! the branches in `branch.toml` and `branches/*.toml`.
use super::{module::source, names::Kind, reader::Reader, spec};
use crate::{
    diagnostic::Severity,
    model::{Branch, Installer, KubernetesContext, OperationRoles, Source},
};

pub fn operation_roles(reader: &Reader<'_>) -> Option<OperationRoles> {
    let document = reader.document("operation_roles.toml")?;
    let section = reader.section(&document);
    let roles = OperationRoles {
        kind: section.string("type").unwrap_or_else(|| "matrix".into()),
        rules: spec::operation_roles(&section, "rules"),
    };
    for rule in section.sections("rules") {
        let Some(principal) = rule.string("principal") else { continue };
        let named = [("nuon::component:", Kind::Component), ("nuon::action:", Kind::Action)];
        let named =
            named.iter().find_map(|(prefix, kind)| Some((principal.strip_prefix(prefix)?, *kind)));
        match named {
            Some(("*", _)) => {}
            Some((name, kind)) => {
                let mut names = rule.reader.names.borrow_mut();
                names.mention(kind, name, Severity::Warning, rule.origin("principal"));
            }
            None if principal == "nuon::sandbox" => {}
            None => {
                let message = format!("unknown principal `{principal}`");
                let remedy = "use nuon::sandbox, nuon::component:NAME or nuon::action:NAME";
                rule.warning("principal", "bad_value", message, remedy);
            }
        }
    }
    section.finish();
    Some(roles)
}

pub fn contexts(reader: &Reader<'_>) -> Vec<KubernetesContext> {
    let Some(document) = reader.document("kubernetes_contexts.toml") else { return Vec::new() };
    let section = reader.section(&document);
    let mut contexts = Vec::new();
    for inner in section.sections("kubernetes_context") {
        let component = inner.mentioned("component", Kind::Component, Severity::Error);
        let (name, component) = (inner.declared(Kind::Context), component.unwrap_or_default());
        contexts.push(KubernetesContext { at: inner.place(), name, component });
        inner.finish();
    }
    section.finish();
    contexts
}

/// Source of the installs, if it is not `installs/`.
pub fn installs_elsewhere(reader: &Reader<'_>) -> Option<Source> {
    let document = reader.document("installs.toml")?;
    let section = reader.section(&document);
    let place = source(&section);
    section.finish();
    place
}

pub fn branches(reader: &Reader<'_>) -> Vec<Branch> {
    let mut documents = reader.documents("branches");
    documents.extend(reader.document("branch.toml"));
    let mut branches = Vec::new();
    for document in &documents {
        let section = reader.section(document);
        branches.push(Branch {
            at: section.place(),
            name: section.declared(Kind::Branch),
            file: section.file().to_string(),
            source: source(&section),
        });
        section.ignore(&["installs", "install_groups", "description", "labels"]);
        section.finish();
    }
    branches
}

pub fn installer(reader: &Reader<'_>) -> Option<Installer> {
    let document = reader.document("installer.toml")?;
    let section = reader.section(&document);
    let installer = Installer {
        at: section.place(),
        name: section.required("name"),
        description: section.string("description").unwrap_or_default(),
        apps: section.strings("apps"),
        post_install_markdown: section.text("post_install_markdown"),
    };
    section.ignore(&["documentation_url", "community_url", "homepage_url", "github_url"]);
    section.ignore(&["logo_url", "demo_url", "favicon_url", "og_image_url"]);
    section.ignore(&["footer_markdown", "copyright_markdown"]);
    section.finish();
    Some(installer)
}
