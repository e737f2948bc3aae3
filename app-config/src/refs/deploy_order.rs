//! Deploy order of components whose templates iterate over all components, or read a component
//! whose name only rendering determines.
//!
//! The result of such a template would depend on the order of deploys. The component therefore
//! comes after every component that does not depend on it. Of several such components, the one
//! whose name sorts first comes last.
use std::collections::{BTreeMap, BTreeSet};

use super::Node;

/// Maximum number of added edges. Above it, no edge is added, because the edges could exhaust
/// memory.
const MAX_EDGES: usize = 250_000;

pub(super) fn add(components: &mut BTreeMap<String, Node>) {
    let over_all = components.iter().filter(|(_, node)| node.reads.all_components);
    let over_all: Vec<String> = over_all.map(|(name, _)| name.clone()).collect();
    if over_all.len() * components.len() > MAX_EDGES {
        return;
    }
    for name in over_all {
        let after = after(components, &name);
        let before: Vec<String> =
            components.keys().filter(|other| !after.contains(*other)).cloned().collect();
        if let Some(node) = components.get_mut(&name) {
            node.dependencies.extend(before);
        }
    }
}

/// A component and all its dependents.
fn after(components: &BTreeMap<String, Node>, name: &str) -> BTreeSet<String> {
    let mut needed_by: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (above, node) in components {
        for below in &node.dependencies {
            needed_by.entry(below).or_default().push(above);
        }
    }
    let (mut found, mut left) = (BTreeSet::from([name]), vec![name]);
    while let Some(below) = left.pop() {
        let above = needed_by.get(below).into_iter().flatten();
        left.extend(above.filter(|above| found.insert(above)));
    }
    found.into_iter().map(str::to_string).collect()
}
