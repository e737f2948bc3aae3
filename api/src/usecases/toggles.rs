//! Components that an install enables or disables.
use std::collections::BTreeSet;

use app_config::model::Component;
use domain::{
    actor::Actor,
    ids::InstallId,
    install::{Install, InstallCommand},
    run::plan::Scope,
};
use schemas::problem::FieldProblem;

use crate::{
    configs::Config,
    execute::UnitOfWork,
    problem::Problem,
    render::toggles::{Toggles, disabled, unmet_dependencies},
};

/// Records the components that an install enables or disables.
pub(super) async fn set(
    unit: &mut UnitOfWork,
    install: InstallId,
    config: &Config,
    toggles: &Toggles,
    (by, reason): (&Actor, Option<&String>),
) -> Result<(), Problem> {
    let problems: Vec<FieldProblem> = toggles
        .keys()
        .filter_map(|name| match config.app.component(name) {
            Some(component) if component.module.options.is_toggleable() => None,
            Some(Component { file, .. }) => Some(format!(
                "{name} cannot be enabled or disabled: it is not toggleable; set `toggleable = true` in {file} and sync"
            )),
            None => Some(format!("the install's config version has no component {name:?}")),
        })
        .map(field)
        .collect();
    if !problems.is_empty() {
        return Err(Problem::invalid(UNCHANGED, problems));
    }
    for (name, enabled) in toggles {
        let (name, enabled) = (name.clone(), *enabled);
        let (by, reason) = (by.clone(), reason.cloned());
        let set = InstallCommand::SetComponentEnabled { name, enabled, by, reason };
        unit.handle::<Install>(install, set).await?;
    }
    let after = unit.load::<Install>(install).await?;
    match problem(config, &after.component_choices()) {
        Some(problem) => Err(Problem::invalid(UNCHANGED, vec![field(problem)])),
        None => Ok(()),
    }
}

const UNCHANGED: &str = "cannot enable or disable the components; nothing was changed";

fn field(message: String) -> FieldProblem {
    FieldProblem { field: Some("components".into()), message, ..FieldProblem::default() }
}

/// Message about enabled components that require disabled components. `None` if there are no such
/// components.
pub(super) fn problem(config: &Config, toggles: &Toggles) -> Option<String> {
    let broken: Vec<String> = unmet_dependencies(config, toggles)
        .into_iter()
        .map(|(name, missing)| format!("{name} requires {}", listed(missing)))
        .collect();
    (!broken.is_empty()).then(|| {
        format!(
            "enabled components require disabled components: {}; disable the enabled components, or enable the required components",
            broken.join("; ")
        )
    })
}

/// Scope of a run without the disabled components. Rejects a scope that names a disabled component.
pub(super) fn scope(config: &Config, toggles: &Toggles, scope: Scope) -> Result<Scope, Problem> {
    let disabled = disabled(config, toggles);
    match scope {
        Scope::Named { names, dependents } => {
            let disabled_names: BTreeSet<String> = &names & &disabled;
            if disabled_names.is_empty() {
                return Ok(Scope::Named { names, dependents });
            }
            let message = format!(
                "these components are disabled on this install: {}; enable them first: stead installs enable-component INSTALL COMPONENT",
                listed(disabled_names)
            );
            Err(Problem::invalid(
                "cannot request the run; nothing was changed",
                vec![field(message)],
            ))
        }
        Scope::Remaining(mut remaining) => {
            remaining.deploy.retain(|name| !disabled.contains(name));
            Ok(Scope::Remaining(remaining))
        }
        Scope::Changed | Scope::Everything => Ok(scope),
    }
}

fn listed(names: BTreeSet<String>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
}
