//! Sorts components by dependency.
use std::collections::{BTreeMap, BTreeSet};

/// Returns the names in topological order: each component follows its dependencies.
///
/// A config has no dependency cycle, but the actual state may have one. After an apply that failed
/// halfway, a component has its earlier and its new dependencies. The members of a cycle are
/// adjacent, after all their other dependencies and before all their other dependents.
pub(super) fn topological_order<C>(
    components: &BTreeMap<String, C>,
    depends_on: impl Fn(&C) -> &BTreeSet<String>,
) -> Vec<&str> {
    let mut ordered: Vec<&str> = vec![];
    let mut remaining: Vec<&str> = components.keys().map(String::as_str).collect();
    while !remaining.is_empty() {
        let is_ready = |name: &&str| {
            components.get(*name).is_some_and(|c| {
                depends_on(c).iter().all(|dependency| {
                    ordered.contains(&dependency.as_str()) || !components.contains_key(dependency)
                })
            })
        };
        let (mut ready, mut later): (Vec<&str>, Vec<&str>) =
            remaining.iter().copied().partition(|name| is_ready(name));
        if ready.is_empty() {
            // Finds at least one name, because a path along the dependencies ends in a cycle whose
            // members wait only for each other.
            let waits_only_for_its_cycle = |name: &&str| {
                let mut all = dependencies_of(components, &depends_on, name).into_iter();
                all.all(|dependency| {
                    ordered.contains(&dependency)
                        || dependencies_of(components, &depends_on, dependency).contains(name)
                })
            };
            (ready, later) = later.into_iter().partition(waits_only_for_its_cycle);
        }
        ordered.extend(ready);
        remaining = later;
    }
    ordered
}

/// Returns the members of the dependency cycle that contains the name. Without a cycle, returns
/// only the name.
pub(super) fn cycle_of<'c, C>(
    components: &'c BTreeMap<String, C>,
    depends_on: impl Fn(&C) -> &BTreeSet<String>,
    name: &'c str,
) -> BTreeSet<&'c str> {
    let mut cycle = dependencies_of(components, &depends_on, name);
    cycle.retain(|other| dependencies_of(components, &depends_on, other).contains(name));
    cycle.insert(name);
    cycle
}

/// Returns the direct and indirect dependencies of a name.
fn dependencies_of<'c, C>(
    components: &'c BTreeMap<String, C>,
    depends_on: impl Fn(&C) -> &BTreeSet<String>,
    name: &str,
) -> BTreeSet<&'c str> {
    let mut dependencies = BTreeSet::new();
    let mut next = vec![name.to_string()];
    while let Some(depends_on) = next.pop().and_then(|name| components.get(&name)).map(&depends_on)
    {
        for (dependency, _) in
            depends_on.iter().filter_map(|dependency| components.get_key_value(dependency))
        {
            if dependencies.insert(dependency.as_str()) {
                next.push(dependency.clone());
            }
        }
    }
    dependencies
}
