//! Converts the differences between two config versions.
use std::collections::{BTreeMap, BTreeSet};

use app_config::{
    AppConfig,
    diff::{Change as Was, ChangeReason, PartChange},
    tree::SANDBOX,
};
use domain::{app::Published, digest::Digest, run::Operation};
use schemas::control::apps::{Change, Diff, FieldChange, Impact, PlannedOperation};
use serde_json::Value;

use crate::usecases::impact::InstallImpact;

/// Maximum number of files of a component that a diff names.
const MAX_FILES: usize = 50;

/// Lists the parts of the config that differ.
pub(crate) fn diff(before: Option<(u32, &AppConfig)>, to: Option<u32>, after: &AppConfig) -> Diff {
    let nothing = AppConfig::default();
    let difference = app_config::diff(before.map_or(&nothing, |(_, config)| config), after);
    let inputs = difference.inputs.iter().map(|part| ("input", part));
    let sandbox = difference.sandbox.iter().map(|part| ("sandbox", part));
    let components = difference.components.iter().map(|part| ("component", part));
    let actions = difference.actions.iter().map(|part| ("action", part));
    let around = difference.around.iter().map(|around| (around.kind, &around.part));
    let all = inputs.chain(sandbox).chain(components).chain(actions).chain(around);
    let changes = all.filter_map(|(kind, part)| change(kind, part)).collect();
    Diff { from: before.map(|(version, _)| version), to, changes, ..Diff::default() }
}

/// Adds the commits that differ between two versions. A component with another commit is a change,
/// even if its config is the same.
pub(crate) fn with_commits(mut diff: Diff, before: Option<&Published>, after: &Published) -> Diff {
    for component in &after.components {
        let mut earlier = before.into_iter().flat_map(|before| &before.components);
        let earlier = earlier.find(|earlier| earlier.component == component.component);
        let Some(earlier) = earlier.filter(|earlier| earlier.commit != component.commit) else {
            continue;
        };
        let (before, after) = (earlier.commit.clone(), component.commit.clone());
        let commit = FieldChange { field: "commit".into(), before, after };
        let kind = if component.name == SANDBOX { "sandbox" } else { "component" };
        let mut changes = diff.changes.iter_mut();
        match changes.find(|change| change.kind == kind && change.name == component.name) {
            Some(change) => change.fields.push(commit),
            None => {
                let (change, name) = ("changed".into(), component.name.clone());
                let fields = vec![commit];
                let last = diff.changes.iter().rposition(|other| order(&other.kind) <= order(kind));
                let change = Change { change, kind: kind.into(), name, fields };
                diff.changes.insert(last.map_or(0, |last| last + 1), change);
            }
        }
    }
    diff
}

/// Adds the files of a component that differ between its builds to its change.
pub(crate) fn with_files(
    mut diff: Diff,
    component: &str,
    before: &BTreeMap<String, Digest>,
    after: &BTreeMap<String, Digest>,
) -> Diff {
    let kind = if component == SANDBOX { "sandbox" } else { "component" };
    let mut changes = diff.changes.iter_mut();
    let Some(change) = changes.find(|one| one.kind == kind && one.name == component) else {
        return diff;
    };
    let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let is_shown = |path: &String| change.fields.iter().any(|field| field.field == *path);
    let differs = |path: &&String| before.get(*path) != after.get(*path) && !is_shown(path);
    let mut changed: Vec<String> = paths.into_iter().filter(differs).cloned().collect();
    if changed.len() > MAX_FILES {
        let more = changed.len() - MAX_FILES;
        changed.truncate(MAX_FILES);
        changed.push(format!("and {more} more files"));
    }
    let fields = changed.into_iter().map(|field| FieldChange { field, before: None, after: None });
    change.fields.extend(fields);
    diff
}

/// Returns the position of a kind in the list of changes.
fn order(kind: &str) -> usize {
    let kinds = ["input", "sandbox", "component"];
    kinds.iter().position(|known| *known == kind).unwrap_or(kinds.len())
}

/// Adds the impact on installs to a diff.
pub(crate) fn with_impact(diff: Diff, (impacts, more): (Vec<InstallImpact>, u64)) -> Diff {
    let remaining_installs = Some(more).filter(|more| *more > 0);
    Diff { impact: impacts.into_iter().map(impact_to_wire).collect(), remaining_installs, ..diff }
}

fn impact_to_wire(reached: InstallImpact) -> Impact {
    let InstallImpact { install, name, config_version, is_provisioned: is_there, plans, inputs } =
        reached;
    let (plans, problem) = match plans {
        Ok(plans) => (plans, None),
        Err(problem) => (vec![], Some(problem)),
    };
    let planned = |(name, operation): (String, Operation)| {
        let operation = match operation {
            Operation::Apply => "apply",
            Operation::Destroy => "destroy",
            Operation::Execute => "execute",
            Operation::Check => "check",
        };
        PlannedOperation { name, operation: operation.into() }
    };
    let plans = plans.into_iter().map(planned).collect();
    Impact { install, name, config_version, provisioned: is_there, plans, problem, inputs }
}

fn change(kind: &str, part: &PartChange) -> Option<Change> {
    let change = match part.change {
        Was::Added => "added",
        Was::Changed => "changed",
        Was::Removed => "removed",
        Was::Unchanged => return None,
    };
    let fields = part.why.iter().map(field).collect();
    Some(Change { change: change.into(), kind: kind.into(), name: part.name.clone(), fields })
}

fn field(why: &ChangeReason) -> FieldChange {
    // The values of these changes are not shown.
    let other = |field: String| FieldChange { field, before: None, after: None };
    match why {
        ChangeReason::Source => other("source".into()),
        ChangeReason::Text { key } => other(key.clone()),
        ChangeReason::File { path } => other(path.clone()),
        ChangeReason::Plugin { name } => other(format!("plugin {name}")),
        ChangeReason::RunnerEnv => other("runner env_vars".into()),
        ChangeReason::Setting { key, before, after } => FieldChange {
            field: key.clone(),
            before: before.as_ref().map(text),
            after: after.as_ref().map(text),
        },
        ChangeReason::InputDefault { input, before, after } => FieldChange {
            field: format!("default of the input {input}"),
            before: before.clone(),
            after: after.clone(),
        },
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
