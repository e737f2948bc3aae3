//! Plans the steps that change an install from its actual to its desired state.
//!
//! With [`Scope::Changed`], a deploy plans only the components that a change affects. Such a
//! component is new, has another fingerprint, uses outdated outputs, reads outputs of a changed
//! sandbox, or depends on a planned component. The planner has no clock, and the caller provides
//! new ids.
use std::collections::{BTreeMap, BTreeSet};

use super::{Operation, RemainingWork, StepOptions, StepSpec, Target};
use crate::{
    digest::Digest,
    ids::{BuildId, ComponentId, StepId},
};

mod destroy;
mod drift;
mod toposort;

pub use destroy::{deprovision, teardown};
pub use drift::drift;

/// State that a config version requires.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DesiredState {
    /// The base infrastructure. `None` if the app has none.
    pub sandbox: Option<DesiredSandbox>,
    /// Components, by name.
    pub components: BTreeMap<String, DesiredComponent>,
    /// Names of the actions to execute after all deploys, in this order.
    pub after: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DesiredSandbox {
    pub build: BuildId,
    /// See [`StepSpec::fingerprint`].
    pub fingerprint: Digest,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DesiredComponent {
    pub component: ComponentId,
    pub build: BuildId,
    /// Names of the direct dependencies.
    pub depends_on: BTreeSet<String>,
    /// True if the component reads outputs of the sandbox.
    pub reads_sandbox: bool,
    /// See [`StepSpec::fingerprint`].
    pub fingerprint: Digest,
}

/// State that an install has.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ActualState {
    /// Build and fingerprint of the deployed sandbox, as in [`ActualComponent`].
    pub sandbox: Option<(BuildId, Option<Digest>)>,
    /// Components, by name.
    pub components: BTreeMap<String, ActualComponent>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ActualComponent {
    pub component: ComponentId,
    pub build: BuildId,
    /// Fingerprint of the last successful apply, or of the last plan without changes. `None` during
    /// an apply, and after an apply that did not succeed: the actual state is then unknown.
    pub fingerprint: Option<Digest>,
    /// Names of the direct dependencies, as in [`crate::install::Deployed`].
    pub depends_on: BTreeSet<String>,
    pub stale_outputs: StaleOutputs,
}

/// Outputs that changed since the last deploy of a component began. Includes outputs that the
/// component does not read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StaleOutputs {
    /// True if outputs of the sandbox changed.
    pub sandbox: bool,
    /// Names of the components whose outputs changed.
    pub components: BTreeSet<String>,
}

/// Parts of an install that a deploy includes.
#[derive(Debug, Clone, PartialEq)]
pub enum Scope {
    /// The sandbox if it changed, and the components that a change affects.
    Changed,
    /// The sandbox and all components, changed or not.
    Everything,
    /// The named components, changed or not.
    Named {
        names: BTreeSet<String>,
        /// True to include direct and indirect dependents of the named components.
        dependents: bool,
    },
    /// Only the unfinished work of an earlier run.
    Remaining(RemainingWork),
}

/// Component name that the config version does not define.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("no component is named {0:?}; `stead installs show` lists the components")]
pub struct NoSuchComponent(pub String);

/// Plans the steps of a provision, reprovision, deploy, input update, upgrade or rollback.
///
/// Removed components, which the config no longer has, are destroyed if they are in the scope. A
/// removed component that no planned component uses is destroyed first. Other removed components
/// are destroyed after the applies of the planned components that use them.
pub fn plan_deploy(
    desired: &DesiredState,
    actual: &ActualState,
    scope: &Scope,
    mut new_id: impl FnMut() -> StepId,
) -> Result<Vec<StepSpec>, NoSuchComponent> {
    let named = match scope {
        Scope::Named { names, .. } => Some(names),
        Scope::Remaining(remaining) => Some(&remaining.deploy),
        Scope::Changed | Scope::Everything => None,
    };
    if let Some(unknown) =
        named.into_iter().flatten().find(|name| !desired.components.contains_key(*name))
    {
        return Err(NoSuchComponent(unknown.clone()));
    }
    let has_sandbox = actual.sandbox.as_ref().and_then(|(_, fingerprint)| fingerprint.as_ref());
    let sandbox_changes = desired.sandbox.as_ref().is_some_and(|sandbox| match scope {
        Scope::Everything => true,
        Scope::Changed => has_sandbox != Some(&sandbox.fingerprint),
        Scope::Named { .. } => has_sandbox.is_none(),
        Scope::Remaining(remaining) => remaining.sandbox || has_sandbox.is_none(),
    });
    let affected_names = affected(desired, actual, scope, sandbox_changes);
    let mut destroy_plan =
        destroy::DestroyPlan::new(removed_components(desired, actual, scope), &mut new_id);
    let planned = actual.components.iter().filter(|(name, _)| affected_names.contains(*name));
    let used: BTreeMap<&str, &BTreeSet<String>> =
        planned.map(|(name, component)| (name.as_str(), &component.depends_on)).collect();
    let (used_names, unused) = destroy_plan.split_by_use(&used);

    let mut steps = vec![];
    let destroyed = destroy_plan.plan_steps(&unused, &mut steps, |_| vec![]);
    let mut sandbox_step = None;
    if let (true, Some(sandbox)) = (sandbox_changes, &desired.sandbox) {
        let step = destroy_plan.new_id();
        sandbox_step = Some(step);
        steps.push(StepSpec {
            step,
            target: Target::Sandbox { build: sandbox.build },
            operation: Operation::Apply,
            depends_on: destroyed,
            fingerprint: Some(sandbox.fingerprint.clone()),
            options: StepOptions::default(),
        });
    }
    let mut ids: BTreeMap<&str, StepId> = BTreeMap::new();
    for name in toposort::topological_order(&desired.components, |c| &c.depends_on) {
        let Some(component) =
            desired.components.get(name).filter(|_| affected_names.contains(name))
        else {
            continue;
        };
        let step = destroy_plan.new_id();
        let mut depends_on: Vec<StepId> = sandbox_step.into_iter().collect();
        depends_on.extend(
            component.depends_on.iter().filter_map(|dependency| ids.get(dependency.as_str())),
        );
        ids.insert(name, step);
        steps.push(StepSpec {
            step,
            target: Target::Component {
                component: component.component,
                name: name.into(),
                build: component.build,
                depends_on: component.depends_on.clone(),
            },
            operation: Operation::Apply,
            depends_on,
            fingerprint: Some(component.fingerprint.clone()),
            options: StepOptions::default(),
        });
    }
    destroy_plan.plan_steps(&used_names, &mut steps, |name| {
        let users = used.iter().filter(|(_, depends_on)| depends_on.contains(name));
        users.filter_map(|(user, _)| ids.get(user).copied()).collect()
    });

    let after = match scope {
        Scope::Remaining(remaining) => &remaining.actions,
        Scope::Changed | Scope::Everything | Scope::Named { .. } if steps.is_empty() => &vec![],
        Scope::Changed | Scope::Everything | Scope::Named { .. } => &desired.after,
    };
    let mut before: Vec<StepId> = steps.iter().map(|step| step.step).collect();
    for name in after {
        let step = destroy_plan.new_id();
        steps.push(action(step, name.clone(), before));
        before = vec![step];
    }
    Ok(steps)
}

/// Returns the deployed components that the config no longer has and that are in the scope.
fn removed_components<'p>(
    desired: &DesiredState,
    actual: &'p ActualState,
    scope: &Scope,
) -> BTreeMap<&'p str, &'p ActualComponent> {
    let is_in_scope = |name: &str| match scope {
        Scope::Changed | Scope::Everything => true,
        Scope::Named { .. } => false,
        Scope::Remaining(remaining) => remaining.destroy.contains(name),
    };
    let is_removed = |name: &str| !desired.components.contains_key(name) && is_in_scope(name);
    actual.components.iter().map(|(n, c)| (n.as_str(), c)).filter(|(n, _)| is_removed(n)).collect()
}

/// Returns a step that executes an action.
pub fn action(step: StepId, name: String, depends_on: Vec<StepId>) -> StepSpec {
    let target = Target::Action { name };
    let (operation, options) = (Operation::Execute, StepOptions::default());
    StepSpec { step, target, operation, depends_on, fingerprint: None, options }
}

/// Returns the names of the components to plan.
///
/// A change of the sandbox includes all deployed components that read its outputs, even if a user
/// named other components. Such a component may not work on the changed sandbox.
///
/// A fingerprint does not cover outputs of the sandbox and of other components. A component
/// therefore keeps its desired fingerprint if such outputs change and its own step is denied,
/// refused or cancelled. Every deploy of changes plans such a component again until it has read the
/// new outputs.
fn affected(
    desired: &DesiredState,
    actual: &ActualState,
    scope: &Scope,
    sandbox_changes: bool,
) -> BTreeSet<String> {
    let is_changed = |name: &str, component: &DesiredComponent| {
        let is_same = |deployed: &ActualComponent| {
            deployed.fingerprint.as_ref() == Some(&component.fingerprint)
        };
        let has_stale_outputs = |deployed: &ActualComponent| {
            (deployed.stale_outputs.sandbox && component.reads_sandbox)
                || !deployed.stale_outputs.components.is_disjoint(&component.depends_on)
        };
        !actual
            .components
            .get(name)
            .is_some_and(|deployed| is_same(deployed) && !has_stale_outputs(deployed))
            || (sandbox_changes && component.reads_sandbox)
    };
    let sandbox_readers = || {
        let reads = |(name, c): &(&String, &DesiredComponent)| {
            sandbox_changes && c.reads_sandbox && actual.components.contains_key(*name)
        };
        let readers = desired.components.iter().filter(reads).map(|(name, _)| name.clone());
        add_dependents(desired, readers.collect(), |name| actual.components.contains_key(name))
    };
    let (affected_names, with_dependents): (BTreeSet<String>, bool) = match scope {
        Scope::Everything => (desired.components.keys().cloned().collect(), false),
        Scope::Named { names, dependents } => (&sandbox_readers() | names, *dependents),
        Scope::Remaining(remaining) => (&sandbox_readers() | &remaining.deploy, false),
        Scope::Changed => {
            let names = desired.components.iter().filter(|(name, c)| is_changed(name, c));
            (names.map(|(name, _)| name.clone()).collect(), true)
        }
    };
    if with_dependents { add_dependents(desired, affected_names, |_| true) } else { affected_names }
}

/// Adds the direct and indirect dependents of these components for which `includes` returns true.
fn add_dependents(
    desired: &DesiredState,
    mut affected_names: BTreeSet<String>,
    includes: impl Fn(&str) -> bool,
) -> BTreeSet<String> {
    loop {
        let reads_affected = |c: &DesiredComponent| {
            c.depends_on.iter().any(|dependency| affected_names.contains(dependency))
        };
        let more: Vec<String> = desired
            .components
            .iter()
            .filter(|(name, c)| {
                includes(name) && !affected_names.contains(*name) && reads_affected(c)
            })
            .map(|(name, _)| name.clone())
            .collect();
        if more.is_empty() {
            return affected_names;
        }
        affected_names.extend(more);
    }
}
