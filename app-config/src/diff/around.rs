//! What surrounds the components: nobody builds or plans it, and a sync that changes it is none that
//! changes nothing.
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::{Change, PartChange, part, settings};
use crate::model::AppConfig;

/// One such part that is not the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Around {
    /// `role`, `policy`, `secret`, `runbook` …
    pub kind: &'static str,
    #[serde(flatten)]
    pub part: PartChange,
}

pub(super) fn around(before: &AppConfig, after: &AppConfig) -> Vec<Around> {
    let (old, new) = (parts(before), parts(after));
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let change = |(kind, name): &(&'static str, String)| {
        let key = (*kind, name.clone());
        let mut why = Vec::new();
        let change = match (old.get(&key), new.get(&key)) {
            (Some(old), Some(new)) if old == new => return None,
            (Some(old), Some(new)) => {
                settings("", old, new, &mut why);
                Change::Changed
            }
            (None, _) => Change::Added,
            (_, None) => Change::Removed,
        };
        Some(Around { kind, part: part(name, change, why, false) })
    };
    keys.into_iter().filter_map(change).collect()
}

/// Every part by its kind and name. Two of one name are told apart by their order.
fn parts(config: &AppConfig) -> BTreeMap<(&'static str, String), Value> {
    let mut parts = BTreeMap::new();
    let mut put = |kind: &'static str, name: &str, value: Value| {
        let mut key = (kind, name.to_string());
        let mut count = 1;
        while parts.contains_key(&key) {
            count += 1;
            key.1 = format!("{name} ({count})");
        }
        parts.insert(key, value);
    };
    put("metadata", "metadata", json(&config.metadata));
    let single = [
        ("runner", config.runner.as_ref().map(json)),
        ("stack", config.stack.as_ref().map(json)),
        ("operation_roles", config.operation_roles.as_ref().map(json)),
        ("installer", config.installer.as_ref().map(json)),
        ("installs", config.installs_elsewhere.as_ref().map(json)),
    ];
    for (kind, value) in single {
        if let Some(value) = value {
            put(kind, kind, value);
        }
    }
    config.input_groups.iter().for_each(|one| put("input group", &one.name, json(one)));
    config.roles.iter().for_each(|one| put("role", &one.name.value, json(one)));
    config.policies.iter().for_each(|one| put("policy", &one.kind, json(one)));
    config.secrets.iter().for_each(|one| put("secret", &one.name, json(one)));
    config.runbooks.iter().for_each(|one| put("runbook", &one.name, json(one)));
    config.installs.iter().for_each(|one| put("install", &one.name, json(one)));
    config.branches.iter().for_each(|one| put("branch", &one.name, json(one)));
    config.kubernetes_contexts.iter().for_each(|one| put("cluster", &one.name, json(one)));
    parts
}

fn json(of: &impl Serialize) -> Value {
    serde_json::to_value(of).unwrap_or_default()
}
