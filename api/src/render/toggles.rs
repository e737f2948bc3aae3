//! Optional components: enabled by the config's default or by the install's choice.
use std::collections::{BTreeMap, BTreeSet};

use app_config::model::Component;

use crate::configs::Config;

/// Choices of an install, by component.
pub(crate) type Toggles = BTreeMap<String, bool>;

/// Returns true if deploys of an install include a component. A choice counts only while the config
/// lets installs choose.
pub(crate) fn is_enabled(component: &Component, toggles: &Toggles) -> bool {
    let options = &component.module.options;
    let chosen = toggles.get(&component.name).copied().filter(|_| options.is_toggleable());
    chosen.or(options.default_enabled).unwrap_or(true)
}

/// Names of the config's components that are disabled.
pub(crate) fn disabled(config: &Config, toggles: &Toggles) -> BTreeSet<String> {
    let off = config.app.components.iter().filter(|component| !is_enabled(component, toggles));
    off.map(|component| component.name.clone()).collect()
}

/// Enabled components that require disabled ones, with the names of these disabled components.
pub(crate) fn unmet_dependencies(
    config: &Config,
    toggles: &Toggles,
) -> BTreeMap<String, BTreeSet<String>> {
    let disabled = disabled(config, toggles);
    let enabled = config.app.components.iter().filter(|one| !disabled.contains(&one.name));
    enabled
        .map(|one| (one.name.clone(), &config.graph.required(one) & &disabled))
        .filter(|(_, missing)| !missing.is_empty())
        .collect()
}
