//! Plans a drift check: one step for the sandbox and one for each component of the install.
use super::{ActualState, DesiredState, Scope};
use crate::{
    ids::StepId,
    run::{Operation, StepOptions, StepSpec, Target},
};

/// Plans the steps of a drift check.
///
/// A step compares a part of the install with the config version of the run, or with the version that
/// deployed the part if the config no longer has it. Such a step has no fingerprint. The steps do not
/// depend on each other, so a part that cannot be checked does not prevent the other checks.
pub fn drift(
    desired: &DesiredState,
    actual: &ActualState,
    scope: &Scope,
    mut new_id: impl FnMut() -> StepId,
) -> Vec<StepSpec> {
    let remaining = match scope {
        Scope::Remaining(remaining) => Some(remaining),
        Scope::Changed | Scope::Everything | Scope::Named { .. } => None,
    };
    let mut steps = vec![];
    let mut add = |target, fingerprint| {
        steps.push(StepSpec {
            step: new_id(),
            target,
            operation: Operation::Check,
            depends_on: vec![],
            fingerprint,
            options: StepOptions::default(),
        });
    };
    if let Some((deployed, _)) = actual.sandbox.as_ref()
        && remaining.is_none_or(|remaining| remaining.sandbox)
    {
        let current = desired.sandbox.as_ref();
        let build = current.map_or(*deployed, |sandbox| sandbox.build);
        let fingerprint = current.map(|sandbox| sandbox.fingerprint.clone());
        add(Target::Sandbox { build }, fingerprint);
    }
    for (name, component) in &actual.components {
        if remaining.is_some_and(|remaining| !remaining.deploy.contains(name)) {
            continue;
        }
        let (build, depends_on, fingerprint) = match desired.components.get(name) {
            Some(current) => {
                (current.build, &current.depends_on, Some(current.fingerprint.clone()))
            }
            None => (component.build, &component.depends_on, None),
        };
        let (name, depends_on) = (name.clone(), depends_on.clone());
        let component = component.component;
        add(Target::Component { component, name, build, depends_on }, fingerprint);
    }
    steps
}
