//! Desired state of a config version.
//!
//! A fingerprint covers the module with its settings, and the environment of the runner. It also
//! covers the commit of a git source, and the inputs and stack outputs that the module or this
//! environment reads. It does not cover the outputs of other components.
use std::collections::{BTreeMap, BTreeSet};

use app_config::{
    Reads,
    model::{Module, Spec, TriggerKind},
    tree::SANDBOX,
};
use domain::{
    app::{Published, PublishedComponent},
    digest::Digest,
    install::Outputs,
    run::{
        RunKind, StepOptions, Target,
        plan::{DesiredComponent, DesiredSandbox, DesiredState},
    },
};
use serde_json::{Value, json};

use super::{
    step::cluster::depends_on_sandbox,
    toggles::{Toggles, is_enabled},
};
use crate::{configs::Config, problem::Problem};

/// Inputs, stack outputs and component toggles of an install, from which its desired state is
/// rendered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InstallValues<'g> {
    /// Values of all inputs of the config: the install's value or the default.
    pub inputs: &'g BTreeMap<String, String>,
    /// Outputs of the customer's stack.
    pub stack: &'g Outputs,
    /// Components that the install enabled or disabled.
    pub toggles: &'g Toggles,
}

/// Returns the trigger of the actions at the end of a run of this kind. A teardown, a deprovision and
/// a drift check have no such actions.
pub(crate) fn trigger(kind: RunKind) -> Option<TriggerKind> {
    match kind {
        RunKind::Provision => Some(TriggerKind::PostProvision),
        RunKind::Reprovision => Some(TriggerKind::PostReprovision),
        RunKind::Deploy | RunKind::Upgrade | RunKind::Rollback => {
            Some(TriggerKind::PostDeployAllComponents)
        }
        RunKind::InputUpdate => Some(TriggerKind::PostUpdateInputs),
        RunKind::Action => Some(TriggerKind::Manual),
        RunKind::Teardown | RunKind::Deprovision | RunKind::Drift => None,
    }
}

/// Returns the desired state of a config version for the values of an install.
pub(crate) fn desired_state(
    config: &Config,
    published: &Published,
    given: InstallValues<'_>,
    after: TriggerKind,
) -> Result<DesiredState, Problem> {
    let part = |name: &str| {
        published.components.iter().find(|part| part.name == name).ok_or_else(|| {
            Problem::internal(format!("the bundle has {name}, but the config version lacks it"))
        })
    };
    let mut desired = DesiredState::default();
    if let Some(sandbox) = &config.app.sandbox {
        let part = part(SANDBOX)?;
        let fingerprint = fingerprint(config, part, &sandbox.module, given)?;
        desired.sandbox = Some(DesiredSandbox { build: part.build, fingerprint });
    }
    let enabled = config.app.components.iter().filter(|one| is_enabled(one, given.toggles));
    for component in enabled {
        let part = part(&component.name)?;
        let reads = reads(config, &component.name);
        desired.components.insert(
            component.name.clone(),
            DesiredComponent {
                component: part.component,
                build: part.build,
                depends_on: depends_on(config, &component.name),
                // The outputs of the sandbox can name the registry of the images.
                reads_sandbox: matches!(component.module.spec, Spec::Image(_))
                    || reads.is_some_and(|reads| !reads.sandbox.is_empty())
                    || depends_on_sandbox(&config.app, component),
                fingerprint: fingerprint(config, part, &component.module, given)?,
            },
        );
    }
    let mut triggered: Vec<(i64, &str)> = config
        .app
        .actions
        .iter()
        .flat_map(|action| action.triggers.iter().map(move |trigger| (action, trigger)))
        .filter(|(_, trigger)| trigger.kind == after)
        .map(|(action, trigger)| (trigger.index, action.name.as_str()))
        .collect();
    triggered.sort_unstable();
    desired.after = triggered.into_iter().map(|(_, name)| name.to_string()).collect();
    Ok(desired)
}

/// Settings of the config for a step of this target.
pub(crate) fn options(config: &Config, target: &Target) -> StepOptions {
    let options = |module: &Module| StepOptions {
        max_auto_retries: module.options.auto_retries(),
        applies_noops: module.options.skip_noops == Some(false),
    };
    let found = match target {
        Target::Sandbox { .. } => config.app.sandbox.as_ref().map(|one| options(&one.module)),
        Target::Component { name, .. } => {
            config.app.component(name).map(|one| options(&one.module))
        }
        Target::Action { name } => config.app.action(name).map(|action| StepOptions {
            max_auto_retries: action.max_auto_retries,
            ..StepOptions::default()
        }),
    };
    found.unwrap_or_default()
}

/// Names of the components that a component depends on.
pub(crate) fn depends_on(config: &Config, name: &str) -> BTreeSet<String> {
    config.graph.dependencies(name)
}

fn reads<'c>(config: &'c Config, name: &str) -> Option<&'c Reads> {
    if name == SANDBOX {
        return Some(&config.graph.sandbox);
    }
    config.graph.components.get(name).map(|node| &node.reads)
}

fn fingerprint(
    config: &Config,
    part: &PublishedComponent,
    module: &Module,
    given: InstallValues<'_>,
) -> Result<Digest, Problem> {
    let (own, runner) = (reads(config, &part.name), &config.graph.runner);
    let is_read =
        |name: &str| own.is_some_and(|reads| reads.reads_input(name)) || runner.reads_input(name);
    let read: BTreeMap<&String, &String> =
        given.inputs.iter().filter(|(name, _)| is_read(name)).collect();
    let env = config.app.runner.as_ref().map(|runner| &runner.env_vars);
    let mut decides = json!({ "module": module.digest, "inputs": read, "env": env });
    // Until the reference is resolved, only the build identifies the source.
    if part.git.is_some() {
        decides["source"] = match &part.commit {
            Some(commit) => json!(commit),
            None => json!(part.build),
        };
    }
    let is_read = |name: &str| own.into_iter().chain([runner]).any(|r| r.reads_stack(name));
    let stack: BTreeMap<&String, &Value> =
        given.stack.iter().filter(|(name, _)| is_read(name)).collect();
    if !stack.is_empty() {
        decides["stack"] = json!(stack);
    }
    let bytes = proof::canonical::json(&decides).map_err(Problem::internal)?;
    event_log::blob::digest(&bytes).map_err(Problem::internal)
}

#[cfg(test)]
mod tests;
