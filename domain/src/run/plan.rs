//! From a config and what an install has to the steps that bring the one to the other.
//!
//! Only what is reached is planned: a component that is new, that changed (its fingerprint is not
//! the deployed one), that runs on outputs which are others by now, or that reads from one that is
//! planned. Nothing here knows the clock or makes ids: the caller gives them.
use std::collections::{BTreeMap, BTreeSet};

use super::{Operation, StepOptions, StepSpec, Target, Undone};
use crate::{
    digest::Digest,
    ids::{BuildId, ComponentId, StepId},
};

mod down;
mod order;

pub use down::{deprovision, teardown};

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
    pub depends_on: BTreeSet<String>,
    /// Whether it reads outputs of the sandbox.
    pub reads_sandbox: bool,
    /// Everything that decides the result, but outputs of others.
    pub fingerprint: Digest,
}

/// What an install has.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Present {
    /// What its sandbox was brought from, and what decided the result; see [`PresentComponent`].
    pub sandbox: Option<(BuildId, Option<Digest>)>,
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
    /// What decided the result; none where an apply did not succeed, so that nobody knows what is there.
    pub fingerprint: Option<Digest>,
    /// Names of the components that it needed.
    pub depends_on: BTreeSet<String>,
    /// What became another after it was read for the last time.
    pub missed: Missed,
}

/// Outputs that became others after a component had read them, if it reads them at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Missed {
    /// Whether those of the sandbox did.
    pub sandbox: bool,
    /// Names of the components whose outputs did.
    pub components: BTreeSet<String>,
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
    /// What an earlier run left undone, and nothing else.
    Undone(Undone),
}

/// A name that no component has.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("no component is named {0:?}")]
pub struct NoSuchComponent(pub String);

/// The steps of a provision, reprovision, deploy, input update or rollback.
///
/// A component that the config no longer has is destroyed: first of all where nothing that is planned
/// uses it, else when everything that used it has moved off it.
pub fn bring(
    wanted: &Wanted,
    present: &Present,
    scope: &Scope,
    mut new_id: impl FnMut() -> StepId,
) -> Result<Vec<StepSpec>, NoSuchComponent> {
    let named = match scope {
        Scope::Named { names, .. } => Some(names),
        Scope::Undone(undone) => Some(&undone.bring),
        Scope::Reached | Scope::Everything => None,
    };
    if let Some(unknown) =
        named.into_iter().flatten().find(|name| !wanted.components.contains_key(*name))
    {
        return Err(NoSuchComponent(unknown.clone()));
    }
    let has_sandbox = present.sandbox.as_ref().and_then(|(_, fingerprint)| fingerprint.as_ref());
    let sandbox_moves = wanted.sandbox.as_ref().is_some_and(|sandbox| match scope {
        Scope::Everything => true,
        Scope::Reached => has_sandbox != Some(&sandbox.fingerprint),
        Scope::Named { .. } => has_sandbox.is_none(),
        Scope::Undone(undone) => undone.sandbox || has_sandbox.is_none(),
    });
    let reached = reached(wanted, present, scope, sandbox_moves);
    let mut down = down::Down::new(gone(wanted, present, scope), &mut new_id);
    let moves = present.components.iter().filter(|(name, _)| reached.contains(*name));
    let used: BTreeMap<&str, &BTreeSet<String>> =
        moves.map(|(name, has)| (name.as_str(), &has.depends_on)).collect();
    let (late, free) = down.late(&used);

    let mut steps = vec![];
    let destroyed = down.take(&free, &mut steps, |_| vec![]);
    let mut sandbox_step = None;
    if let (true, Some(sandbox)) = (sandbox_moves, &wanted.sandbox) {
        let step = down.new_id();
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
    for name in order::in_order(&wanted.components, |c| &c.depends_on) {
        let Some(component) = wanted.components.get(name).filter(|_| reached.contains(name)) else {
            continue;
        };
        let step = down.new_id();
        let mut depends_on: Vec<StepId> = sandbox_step.into_iter().collect();
        depends_on.extend(component.depends_on.iter().filter_map(|need| ids.get(need.as_str())));
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
    down.take(&late, &mut steps, |name| {
        let users = used.iter().filter(|(_, depends_on)| depends_on.contains(name));
        users.filter_map(|(user, _)| ids.get(user).copied()).collect()
    });

    let after = match scope {
        Scope::Undone(undone) => &undone.actions,
        Scope::Reached | Scope::Everything | Scope::Named { .. } if steps.is_empty() => &vec![],
        Scope::Reached | Scope::Everything | Scope::Named { .. } => &wanted.after,
    };
    let mut before: Vec<StepId> = steps.iter().map(|step| step.step).collect();
    for name in after {
        let step = down.new_id();
        steps.push(action(step, name.clone(), before));
        before = vec![step];
    }
    Ok(steps)
}

/// What is there and is to go, because the config no longer has it.
fn gone<'p>(
    wanted: &Wanted,
    present: &'p Present,
    scope: &Scope,
) -> BTreeMap<&'p str, &'p PresentComponent> {
    let goes = |name: &str| match scope {
        Scope::Reached | Scope::Everything => true,
        Scope::Named { .. } => false,
        Scope::Undone(undone) => undone.destroy.contains(name),
    };
    let left_out = |name: &str| !wanted.components.contains_key(name) && goes(name);
    present.components.iter().map(|(n, c)| (n.as_str(), c)).filter(|(n, _)| left_out(n)).collect()
}

/// The one step of an action.
pub fn action(step: StepId, name: String, depends_on: Vec<StepId>) -> StepSpec {
    let target = Target::Action { name };
    let (operation, options) = (Operation::Execute, StepOptions::default());
    StepSpec { step, target, operation, depends_on, fingerprint: None, options }
}

/// Names of the components that are to be planned.
///
/// A sandbox that moves takes along what is there and reads it, also where a person named others: what
/// was made for the former one may not run at all.
///
/// What decides a component's result has no outputs of others. So one whose step came to nothing after
/// others had changed (denied, refused, cancelled) is as wanted, and runs on the old outputs: it is
/// planned until it has read the new ones.
fn reached(
    wanted: &Wanted,
    present: &Present,
    scope: &Scope,
    sandbox_moves: bool,
) -> BTreeSet<String> {
    let changed = |name: &str, component: &WantedComponent| {
        let same =
            |has: &PresentComponent| has.fingerprint.as_ref() == Some(&component.fingerprint);
        let missed = |has: &PresentComponent| {
            (has.missed.sandbox && component.reads_sandbox)
                || !has.missed.components.is_disjoint(&component.depends_on)
        };
        !present.components.get(name).is_some_and(|has| same(has) && !missed(has))
            || (sandbox_moves && component.reads_sandbox)
    };
    let on_sandbox = || {
        let reads = |(name, c): &(&String, &WantedComponent)| {
            sandbox_moves && c.reads_sandbox && present.components.contains_key(*name)
        };
        let of = wanted.components.iter().filter(reads).map(|(name, _)| name.clone());
        with_readers(wanted, of.collect(), |name| present.components.contains_key(name))
    };
    let (reached, follow): (BTreeSet<String>, bool) = match scope {
        Scope::Everything => (wanted.components.keys().cloned().collect(), false),
        Scope::Named { names, dependents } => (&on_sandbox() | names, *dependents),
        Scope::Undone(undone) => (&on_sandbox() | &undone.bring, false),
        Scope::Reached => {
            let of = wanted.components.iter().filter(|(name, c)| changed(name, c));
            (of.map(|(name, _)| name.clone()).collect(), true)
        }
    };
    if follow { with_readers(wanted, reached, |_| true) } else { reached }
}

/// These, and whatever reads from them, of those that count.
fn with_readers(
    wanted: &Wanted,
    mut reached: BTreeSet<String>,
    counts: impl Fn(&str) -> bool,
) -> BTreeSet<String> {
    loop {
        let reads_reached =
            |c: &WantedComponent| c.depends_on.iter().any(|need| reached.contains(need));
        let more: Vec<String> = wanted
            .components
            .iter()
            .filter(|(name, c)| counts(name) && !reached.contains(*name) && reads_reached(c))
            .map(|(name, _)| name.clone())
            .collect();
        if more.is_empty() {
            return reached;
        }
        reached.extend(more);
    }
}
