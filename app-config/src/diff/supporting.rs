//! Changes of supporting parts, such as roles and policies. They need no build, but a sync that
//! changes them publishes a new version.
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::{Change, PartChange, part, settings};
use crate::{model::AppConfig, text::Origin};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SupportingChange {
    /// Kind of the part: `role`, `policy`, `secret`, `runbook` …
    pub kind: &'static str,
    #[serde(flatten)]
    pub part: PartChange,
}

pub(super) fn around(before: &AppConfig, after: &AppConfig) -> Vec<SupportingChange> {
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
        Some(SupportingChange { kind, part: part(name, change, why, false) })
    };
    keys.into_iter().filter_map(change).collect()
}

/// All supporting parts by kind and name. Parts with equal names are numbered in order.
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
    let json_at = |at: &Origin, one: Value| with_unmodeled(config, at, one);
    put("metadata", "metadata", json_at(&config.metadata.at, json(&config.metadata)));
    let single = [
        ("runner", config.runner.as_ref().map(|one| json_at(&one.at, json(one)))),
        ("stack", config.stack.as_ref().map(|one| json_at(&one.at, json(one)))),
        ("operation_roles", config.operation_roles.as_ref().map(json)),
        ("installer", config.installer.as_ref().map(|one| json_at(&one.at, json(one)))),
        ("installs", config.installs_elsewhere.as_ref().map(json)),
    ];
    for (kind, value) in single {
        if let Some(value) = value {
            put(kind, kind, value);
        }
    }
    config
        .input_groups
        .iter()
        .for_each(|one| put("input group", &one.name, json_at(&one.at, json(one))));
    config.roles.iter().for_each(|one| put("role", &one.name.value, json_at(&one.at, json(one))));
    config.policies.iter().for_each(|one| put("policy", &one.kind, json_at(&one.at, json(one))));
    config.secrets.iter().for_each(|one| put("secret", &one.name, json_at(&one.at, json(one))));
    config.runbooks.iter().for_each(|one| put("runbook", &one.name, json_at(&one.at, json(one))));
    config.installs.iter().for_each(|one| put("install", &one.name, json_at(&one.at, json(one))));
    config.branches.iter().for_each(|one| put("branch", &one.name, json_at(&one.at, json(one))));
    config
        .kubernetes_contexts
        .iter()
        .for_each(|one| put("cluster", &one.name, json_at(&one.at, json(one))));
    parts
}

/// Adds the settings of the part that its typed model does not contain.
fn with_unmodeled(config: &AppConfig, at: &Origin, mut part: Value) -> Value {
    let prefix = if at.key.is_empty() { String::new() } else { format!("{}.", at.key) };
    let unmodeled = config.unmodeled.get(&at.file).into_iter().flatten();
    for (path, value) in unmodeled {
        if let (Some(key), Some(part)) = (path.strip_prefix(&prefix), part.as_object_mut()) {
            part.entry(key).or_insert_with(|| value.clone());
        }
    }
    part
}

fn json(of: &impl Serialize) -> Value {
    serde_json::to_value(of).unwrap_or_default()
}
