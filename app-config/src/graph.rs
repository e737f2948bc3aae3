//! Layers of a directed graph, or the cycle that forbids them.
use std::collections::{BTreeMap, BTreeSet};

/// Who depends on whom; dependencies that are no keys are not looked at.
pub type Edges = BTreeMap<String, BTreeSet<String>>;

/// Every node one layer above the highest of its dependencies, names sorted; or one cycle, its
/// first node repeated at its end.
pub fn layers(edges: &Edges) -> Result<Vec<Vec<String>>, Vec<String>> {
    let mut left = edges.clone();
    let mut layers = Vec::new();
    while !left.is_empty() {
        let ready: Vec<String> = left
            .iter()
            .filter(|(_, below)| !below.iter().any(|name| left.contains_key(name)))
            .map(|(name, _)| name.clone())
            .collect();
        if ready.is_empty() {
            return Err(cycle(&left));
        }
        left.retain(|name, _| !ready.contains(name));
        layers.push(ready);
    }
    Ok(layers)
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
        assert_eq!(layers(&edges).unwrap_err(), ["b", "c", "b"]);
    }
}
