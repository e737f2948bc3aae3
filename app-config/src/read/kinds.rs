//! Findings about component types that this release does not deploy.
use super::section::Section;
use crate::{
    diagnostic::nearest,
    model::{CONTAINER_IMAGE, PLUGIN_KINDS, TERRAFORM_MODULE, is_deployable},
};

/// Reports why a kind cannot be deployed.
pub fn check(section: &Section<'_>, kind: &str) {
    let plugins = section.reader.plugins;
    if kind.is_empty() || is_deployable(kind, plugins) {
        return;
    }
    if kind == "job" {
        let message = "the component type `job` is no longer part of the format".to_string();
        section.warning("type", "not_supported", message, "use an action");
        return;
    }
    if PLUGIN_KINDS.iter().any(|(name, _)| *name == kind) {
        section.ignored_setting("type", "no_plugin", kind);
        return;
    }
    let message = format!("unknown component type `{kind}`");
    let pinned = plugins.iter().map(|plugin| plugin.name.as_str());
    let built_in = CONTAINER_IMAGE.into_iter().chain([TERRAFORM_MODULE]);
    let known = PLUGIN_KINDS.iter().map(|(name, _)| *name).chain(built_in).chain(pinned);
    match nearest(kind, known) {
        Some(suggestion) => {
            section.error(
                "type",
                "unknown_kind",
                message,
                &format!("did you mean `{suggestion}`?"),
            );
        }
        // Only a server knows the published plugins.
        None => {
            let remedy = format!(
                "use `{TERRAFORM_MODULE}`, or publish a plugin of this name: stead plugins push stead-plugin-{kind}"
            );
            section.warning("type", "unknown_kind", message, &remedy);
        }
    }
}
