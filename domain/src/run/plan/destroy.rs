//! Plans the destruction of components: dependents before their dependencies.
use std::collections::{BTreeMap, BTreeSet};

use super::{
    ActualComponent, ActualState, Operation, Scope, StepOptions, StepSpec, Target, toposort,
};
use crate::ids::StepId;

/// Plans the steps of a teardown: all components, or only the unfinished ones of an earlier run.
pub fn teardown(
    actual: &ActualState,
    scope: &Scope,
    mut new_id: impl FnMut() -> StepId,
) -> Vec<StepSpec> {
    let is_in_scope = |name: &str| match scope {
        Scope::Remaining(remaining) => remaining.destroy.contains(name),
        Scope::Changed | Scope::Everything | Scope::Named { .. } => true,
    };
    let mut steps = vec![];
    let all = actual.components.iter().map(|(n, c)| (n.as_str(), c));
    let mut destroy_plan =
        DestroyPlan::new(all.filter(|(name, _)| is_in_scope(name)).collect(), &mut new_id);
    let names = destroy_plan.components.keys().copied().collect();
    destroy_plan.plan_steps(&names, &mut steps, |_| vec![]);
    steps
}

/// Plans the steps of a deprovision: all components, then the sandbox.
pub fn deprovision(actual: &ActualState, mut new_id: impl FnMut() -> StepId) -> Vec<StepSpec> {
    let mut steps = teardown(actual, &Scope::Everything, &mut new_id);
    if let Some((build, _)) = &actual.sandbox {
        let depends_on = steps.iter().map(|step| step.step).collect();
        steps.push(StepSpec {
            step: new_id(),
            target: Target::Sandbox { build: *build },
            operation: Operation::Destroy,
            depends_on,
            fingerprint: None,
            options: StepOptions::default(),
        });
    }
    steps
}

/// Components to destroy, and the ids of their planned steps.
pub(super) struct DestroyPlan<'p, F> {
    components: BTreeMap<&'p str, &'p ActualComponent>,
    ids: BTreeMap<&'p str, StepId>,
    new_id: F,
}

impl<'p, F: FnMut() -> StepId> DestroyPlan<'p, F> {
    pub(super) fn new(
        components: BTreeMap<&'p str, &'p ActualComponent>,
        new_id: F,
    ) -> DestroyPlan<'p, F> {
        DestroyPlan { components, ids: BTreeMap::new(), new_id }
    }

    pub(super) fn new_id(&mut self) -> StepId {
        (self.new_id)()
    }

    /// Splits the components to destroy: first those that a planned component still uses, directly
    /// or through another component to destroy, then the remaining ones. `used` maps each planned
    /// component to its current dependencies.
    pub(super) fn split_by_use(
        &self,
        used: &BTreeMap<&str, &BTreeSet<String>>,
    ) -> (BTreeSet<&'p str>, BTreeSet<&'p str>) {
        let mut still_used: BTreeSet<&str> = BTreeSet::new();
        loop {
            let is_used_by_another = |name: &str| {
                still_used
                    .iter()
                    .any(|l| self.components.get(l).is_some_and(|c| c.depends_on.contains(name)))
            };
            let is_used = |name: &str| used.values().any(|depends_on| depends_on.contains(name));
            let more: Vec<&str> = self
                .components
                .keys()
                .copied()
                .filter(|name| {
                    !still_used.contains(name) && (is_used(name) || is_used_by_another(name))
                })
                .collect();
            if more.is_empty() {
                break;
            }
            still_used.extend(more);
        }
        let unused =
            self.components.keys().copied().filter(|name| !still_used.contains(name)).collect();
        (still_used, unused)
    }

    /// Plans the destruction of these components, dependents first. Each step also depends on the
    /// steps that `users` returns for its component. Returns the ids of the new steps.
    pub(super) fn plan_steps(
        &mut self,
        names: &BTreeSet<&'p str>,
        steps: &mut Vec<StepSpec>,
        users: impl Fn(&str) -> Vec<StepId>,
    ) -> Vec<StepId> {
        let mut new_steps = vec![];
        let named: BTreeMap<String, &ActualComponent> = self
            .components
            .iter()
            .filter(|(name, _)| names.contains(*name))
            .map(|(name, component)| (name.to_string(), *component))
            .collect();
        for name in toposort::topological_order(&named, |c| &c.depends_on).into_iter().rev() {
            let Some((name, component)) = self.components.get_key_value(name) else { continue };
            let (name, component) = (*name, *component);
            let step = (self.new_id)();
            // A dependent of one member of a cycle counts as a dependent of all members.
            let cycle = toposort::cycle_of(&named, |c| &c.depends_on, name);
            let depends_on_cycle = |other: &&str| {
                self.components
                    .get(*other)
                    .is_some_and(|c| cycle.iter().any(|n| c.depends_on.contains(*n)))
            };
            let mut depends_on: Vec<StepId> =
                self.ids.iter().filter(|(n, _)| depends_on_cycle(n)).map(|(_, id)| *id).collect();
            for user in cycle.iter().flat_map(|name| users(name)) {
                if !depends_on.contains(&user) {
                    depends_on.push(user);
                }
            }
            self.ids.insert(name, step);
            new_steps.push(step);
            steps.push(StepSpec {
                step,
                target: Target::Component {
                    component: component.component,
                    name: name.into(),
                    build: component.build,
                    depends_on: component.depends_on.clone(),
                },
                operation: Operation::Destroy,
                depends_on,
                fingerprint: None,
                options: StepOptions::default(),
            });
        }
        new_steps
    }
}
