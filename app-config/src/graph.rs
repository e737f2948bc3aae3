//! Layers of a directed graph, or the cycle that forbids them.
use std::collections::{BTreeMap, BTreeSet};

/// Who depends on whom; dependencies that are no keys are not looked at.
pub type Edges = BTreeMap<String, BTreeSet<String>>;

/// More cycles than this are not looked for: who has so many reads the first and starts again.
const MOST_CYCLES: usize = 20;

/// Every node one layer above the highest of its dependencies, names sorted; or the cycles that
/// forbid it, each with its first node repeated at its end.
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

/// What depends on nothing that is left.
fn ready(left: &Edges) -> Vec<String> {
    let free = left.iter().filter(|(_, below)| !below.iter().any(|name| left.contains_key(name)));
    free.map(|(name, _)| name.clone()).collect()
}

/// Cycle after cycle: of each that is found the edge that closes it is taken out, until what is left
/// has none.
fn cycles(mut left: Edges) -> Vec<Vec<String>> {
    let mut cycles = Vec::new();
    while cycles.len() < MOST_CYCLES {
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

/// Every node that is left depends on another that is left, so following any path ends in a cycle.
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
    fn a_cycle_is_shown_from_end_to_end() {
        let edges = edges(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"]), ("d", &[])]);
        assert_eq!(layers(&edges).unwrap_err(), [["b", "c", "b"]]);
    }

    #[test]
    fn every_cycle_is_shown_and_not_only_the_first() {
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
    fn more_cycles_than_a_person_reads_are_not_looked_for() {
        let names: Vec<String> = (0..100).map(|n| format!("n{n}")).collect();
        let all = |_: &String| names.iter().cloned().collect();
        let edges: Edges = names.iter().map(|name| (name.clone(), all(name))).collect();
        assert_eq!(layers(&edges).unwrap_err().len(), MOST_CYCLES);
    }
}
