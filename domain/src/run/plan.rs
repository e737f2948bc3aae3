//! From a config and what an install has to the steps that bring the one to the other.
//!
//! Only what is reached is planned: a component that is new, that changed (its fingerprint is not
//! the deployed one), or that reads from one that is planned. Nothing here knows the clock or makes
//! ids: the caller gives them.
use std::collections::{BTreeMap, BTreeSet};

use super::{Operation, StepSpec, Target};
use crate::{
    digest::Digest,
    ids::{BuildId, ComponentId, StepId},
};

/// What a config version wants to be there.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wanted {
    /// The base infrastructure, if the app has one.
    pub sandbox: Option<WantedSandbox>,
    /// By name.
    pub components: BTreeMap<String, WantedComponent>,
    /// Scripts that run when everything is there, in this order.
    pub after: Vec<String>,
}

/// The base infrastructure that a config version wants.
#[derive(Debug, Clone, PartialEq)]
pub struct WantedSandbox {
    /// Where its artifact comes from.
    pub build: BuildId,
    /// Everything that decides the result.
    pub fingerprint: Digest,
}

/// A component that a config version wants.
#[derive(Debug, Clone, PartialEq)]
pub struct WantedComponent {
    /// Which.
    pub component: ComponentId,
    /// Where its artifact comes from.
    pub build: BuildId,
    /// Names of the components that must be there before.
    pub needs: BTreeSet<String>,
    /// Whether it reads outputs of the sandbox.
    pub reads_sandbox: bool,
    /// Everything that decides the result, but outputs of others.
    pub fingerprint: Digest,
}

/// What an install has.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Present {
    /// The fingerprint of its sandbox.
    pub sandbox: Option<(BuildId, Digest)>,
    /// By name.
    pub components: BTreeMap<String, PresentComponent>,
}

/// A component that is deployed.
#[derive(Debug, Clone, PartialEq)]
pub struct PresentComponent {
    /// Which.
    pub component: ComponentId,
    /// What was brought, from this build.
    pub build: BuildId,
    /// What decided the result.
    pub fingerprint: Digest,
    /// Names of the components that it needed.
    pub needs: BTreeSet<String>,
}

/// Which components a deploy is about.
#[derive(Debug, Clone, PartialEq)]
pub enum Scope {
    /// Whatever is reached by a change.
    Reached,
    /// Everything, changed or not.
    Everything,
    /// These, whether changed or not, and with `dependents` all that need them.
    Named {
        /// Names of components.
        names: BTreeSet<String>,
        /// Also whatever needs them.
        dependents: bool,
    },
}

/// A name that no component has.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("no component is named {0:?}")]
pub struct NoSuchComponent(pub String);

/// The steps of a provision, reprovision, deploy, input update or rollback.
///
/// Components that the config no longer has are destroyed first, dependents before what they need.
pub fn bring(
    wanted: &Wanted,
    present: &Present,
    scope: &Scope,
    mut new_id: impl FnMut() -> StepId,
) -> Result<Vec<StepSpec>, NoSuchComponent> {
    if let Scope::Named { names, .. } = scope
        && let Some(unknown) = names.iter().find(|name| !wanted.components.contains_key(*name))
    {
        return Err(NoSuchComponent(unknown.clone()));
    }
    let sandbox_moves = wanted.sandbox.as_ref().is_some_and(|sandbox| match scope {
        Scope::Everything => true,
        Scope::Reached => {
            present.sandbox.as_ref().is_none_or(|(_, has)| *has != sandbox.fingerprint)
        }
        Scope::Named { .. } => present.sandbox.is_none(),
    });
    let reached = reached(wanted, present, scope, sandbox_moves);

    let mut steps = vec![];
    let mut gone: BTreeMap<&str, &PresentComponent> = BTreeMap::new();
    if matches!(scope, Scope::Reached | Scope::Everything) {
        let left_out = |name: &str| !wanted.components.contains_key(name);
        gone.extend(
            present.components.iter().map(|(n, c)| (n.as_str(), c)).filter(|(n, _)| left_out(n)),
        );
    }
    let destroyed = take_down(&gone, &mut steps, &mut new_id);

    let mut sandbox_step = None;
    if let (true, Some(sandbox)) = (sandbox_moves, &wanted.sandbox) {
        let step = new_id();
        sandbox_step = Some(step);
        steps.push(StepSpec {
            step,
            target: Target::Sandbox { build: sandbox.build },
            operation: Operation::Apply,
            needs: destroyed.clone(),
            fingerprint: Some(sandbox.fingerprint.clone()),
        });
    }
    let mut ids: BTreeMap<&str, StepId> = BTreeMap::new();
    for name in in_order(&wanted.components, |c| &c.needs) {
        let Some(component) = wanted.components.get(name).filter(|_| reached.contains(name)) else {
            continue;
        };
        let step = new_id();
        let mut needs: Vec<StepId> = sandbox_step.into_iter().collect();
        needs.extend(component.needs.iter().filter_map(|need| ids.get(need.as_str())));
        ids.insert(name, step);
        steps.push(StepSpec {
            step,
            target: Target::Component {
                component: component.component,
                name: name.into(),
                build: component.build,
                needs: component.needs.clone(),
            },
            operation: Operation::Apply,
            needs,
            fingerprint: Some(component.fingerprint.clone()),
        });
    }
    let mut before: Vec<StepId> = steps.iter().map(|step| step.step).collect();
    if !before.is_empty() {
        for name in &wanted.after {
            let step = new_id();
            steps.push(action(step, name.clone(), before.clone()));
            before = vec![step];
        }
    }
    Ok(steps)
}

/// The steps of a teardown: every component, dependents before what they need.
pub fn teardown(present: &Present, mut new_id: impl FnMut() -> StepId) -> Vec<StepSpec> {
    let mut steps = vec![];
    let all = present.components.iter().map(|(n, c)| (n.as_str(), c)).collect();
    take_down(&all, &mut steps, &mut new_id);
    steps
}

/// The steps of a deprovision: every component, then the sandbox.
pub fn deprovision(present: &Present, mut new_id: impl FnMut() -> StepId) -> Vec<StepSpec> {
    let mut steps = vec![];
    let all = present.components.iter().map(|(n, c)| (n.as_str(), c)).collect();
    let needs = take_down(&all, &mut steps, &mut new_id);
    if let Some((build, _)) = &present.sandbox {
        steps.push(StepSpec {
            step: new_id(),
            target: Target::Sandbox { build: *build },
            operation: Operation::Destroy,
            needs,
            fingerprint: None,
        });
    }
    steps
}

/// The one step of an action.
pub fn action(step: StepId, name: String, needs: Vec<StepId>) -> StepSpec {
    let target = Target::Action { name };
    StepSpec { step, target, operation: Operation::Execute, needs, fingerprint: None }
}

/// Destroy these, dependents before what they need; answers with the ids of the steps.
fn take_down(
    gone: &BTreeMap<&str, &PresentComponent>,
    steps: &mut Vec<StepSpec>,
    new_id: &mut impl FnMut() -> StepId,
) -> Vec<StepId> {
    let named: BTreeMap<String, &PresentComponent> =
        gone.iter().map(|(name, component)| (name.to_string(), *component)).collect();
    let mut ids: BTreeMap<&str, StepId> = BTreeMap::new();
    for name in in_order(&named, |c| &c.needs).into_iter().rev() {
        let Some(component) = gone.get(name) else { continue };
        let step = new_id();
        let needs_it = |other: &&str| gone.get(*other).is_some_and(|c| c.needs.contains(name));
        let needs = ids.iter().filter(|(n, _)| needs_it(n)).map(|(_, id)| *id).collect();
        ids.insert(name, step);
        steps.push(StepSpec {
            step,
            target: Target::Component {
                component: component.component,
                name: name.into(),
                build: component.build,
                needs: component.needs.clone(),
            },
            operation: Operation::Destroy,
            needs,
            fingerprint: None,
        });
    }
    ids.into_values().collect()
}

/// Names of the components that are to be planned.
fn reached(
    wanted: &Wanted,
    present: &Present,
    scope: &Scope,
    sandbox_moves: bool,
) -> BTreeSet<String> {
    let changed = |name: &str, component: &WantedComponent| {
        let same = |has: &PresentComponent| has.fingerprint == component.fingerprint;
        !present.components.get(name).is_some_and(same)
            || (sandbox_moves && component.reads_sandbox)
    };
    let (mut reached, follow): (BTreeSet<String>, bool) = match scope {
        Scope::Everything => (wanted.components.keys().cloned().collect(), false),
        Scope::Named { names, dependents } => (names.clone(), *dependents),
        Scope::Reached => {
            let of = wanted.components.iter().filter(|(name, c)| changed(name, c));
            (of.map(|(name, _)| name.clone()).collect(), true)
        }
    };
    if !follow {
        return reached;
    }
    loop {
        let reads_reached = |c: &WantedComponent| c.needs.iter().any(|need| reached.contains(need));
        let more: Vec<String> = wanted
            .components
            .iter()
            .filter(|(name, c)| !reached.contains(*name) && reads_reached(c))
            .map(|(name, _)| name.clone())
            .collect();
        if more.is_empty() {
            return reached;
        }
        reached.extend(more);
    }
}

/// Names in an order in which each comes after what it needs, ties by name. Names that need each
/// other come last: the reader of the config has refused them long before.
fn in_order<C>(
    components: &BTreeMap<String, C>,
    needs: impl Fn(&C) -> &BTreeSet<String>,
) -> Vec<&str> {
    let mut ordered: Vec<&str> = vec![];
    let mut left: Vec<&str> = components.keys().map(String::as_str).collect();
    while !left.is_empty() {
        let free = |name: &&str| {
            components.get(*name).is_some_and(|c| {
                needs(c)
                    .iter()
                    .all(|need| ordered.contains(&need.as_str()) || !components.contains_key(need))
            })
        };
        let (now, later): (Vec<&str>, Vec<&str>) = left.iter().copied().partition(|n| free(n));
        if now.is_empty() {
            ordered.extend(later);
            break;
        }
        ordered.extend(now);
        left = later;
    }
    ordered
}
