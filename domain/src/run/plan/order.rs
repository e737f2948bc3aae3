//! What comes before what.
use std::collections::{BTreeMap, BTreeSet};

/// Names in an order in which each comes after what it needs, ties by name. Names that need each
/// other come last: the reader of the config has refused them long before.
pub(super) fn in_order<C>(
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
