//! Layers of a directed graph, or its cycles.
use std::collections::{BTreeMap, BTreeSet};

/// Dependencies of each node. A dependency that is not a key is ignored.
pub type Edges = BTreeMap<String, BTreeSet<String>>;

/// Maximum number of reported cycles.
const MAX_CYCLES: usize = 20;

/// Returns the layers, each sorted by name; a node is one layer above its highest dependency.
///
/// # Errors
/// Up to [`MAX_CYCLES`] cycles. Each one repeats its first node at the end.
pub fn layers(edges: &Edges) -> Result<Vec<Vec<String>>, Vec<Vec<String>>> {
    let mut left = edges.clone();
    let mut layers = Vec::new();
    while !left.is_empty() {
        let ready = ready(&left);
        if ready.is_empty() {
            return Err(cycles(left));
        }
        left.retain(|name, _| !ready.contains(name));
        layers.push(ready);
    }
    Ok(layers)
}

/// Returns the nodes without a remaining dependency.
fn ready(left: &Edges) -> Vec<String> {
    let free = left.iter().filter(|(_, below)| !below.iter().any(|name| left.contains_key(name)));
    free.map(|(name, _)| name.clone()).collect()
}

/// Finds up to [`MAX_CYCLES`] cycles one by one, and removes the closing edge of each.
fn cycles(mut left: Edges) -> Vec<Vec<String>> {
    let mut cycles = Vec::new();
    while cycles.len() < MAX_CYCLES {
        let ready = ready(&left);
        if !ready.is_empty() {
            left.retain(|name, _| !ready.contains(name));
            continue;
        }
        let cycle = cycle(&left);
        let [.., from, to] = cycle.as_slice() else { break };
        if let Some(below) = left.get_mut(from) {
            below.remove(to);
        }
        cycles.push(cycle);
    }
    cycles
}

/// Finds a cycle. Every remaining node depends on a remaining node, so any path ends in a cycle.
fn cycle(left: &Edges) -> Vec<String> {
    let mut path: Vec<String> = left.keys().take(1).cloned().collect();
    loop {
        let last = path.last().and_then(|name| left.get(name));
        let next = last.and_then(|below| below.iter().find(|name| left.contains_key(*name)));
        let Some(next) = next else { return path };
        if let Some(start) = path.iter().position(|name| name == next) {
            path.push(next.clone());
            return path.split_off(start);
        }
        path.push(next.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(pairs: &[(&str, &[&str])]) -> Edges {
        let set = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        pairs.iter().map(|(name, below)| (name.to_string(), set(below))).collect()
    }

    #[test]
    fn a_diamond_has_three_layers() {
        let edges =
            edges(&[("top", &["l", "r"]), ("l", &["base"]), ("r", &["base"]), ("base", &[])]);
        assert_eq!(layers(&edges).unwrap(), [vec!["base"], vec!["l", "r"], vec!["top"]]);
    }

    #[test]
    fn a_cycle_is_shown_completely() {
        let edges = edges(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"]), ("d", &[])]);
        assert_eq!(layers(&edges).unwrap_err(), [["b", "c", "b"]]);
    }

    #[test]
    fn every_cycle_is_shown() {
        let edges = edges(&[
            ("a", &["b"]),
            ("b", &["a", "base"]),
            ("base", &[]),
            ("c", &["d"]),
            ("d", &["c", "e"]),
            ("e", &["d"]),
            ("self", &["self"]),
            ("top", &["a"]),
        ]);
        let cycles: [&[&str]; 4] =
            [&["a", "b", "a"], &["c", "d", "c"], &["d", "e", "d"], &["self", "self"]];
        assert_eq!(layers(&edges).unwrap_err(), cycles);
    }

    #[test]
    fn the_number_of_cycles_is_limited() {
        let names: Vec<String> = (0..100).map(|n| format!("n{n}")).collect();
        let all = |_: &String| names.iter().cloned().collect();
        let edges: Edges = names.iter().map(|name| (name.clone(), all(name))).collect();
        assert_eq!(layers(&edges).unwrap_err().len(), MAX_CYCLES);
    }
}
