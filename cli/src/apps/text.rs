//! Text output of syncs and diffs.
use schemas::control::{
    Diagnostic,
    apps::{Change, ConfigVersion, Diff, Impact, SyncReport},
};

use super::pack;
use crate::{
    failure::finding_text,
    render::{Screen, Tone},
};

/// Formats the result of a sync or of a dry run.
pub(crate) fn synced(synced: &SyncReport, screen: &Screen) -> String {
    let SyncReport { name, version, .. } = synced;
    if synced.unchanged {
        return format!("No changes: {name} is already at version {version}\n");
    }
    let verb = if synced.dry_run { "would become" } else { "is now at" };
    let mut text = format!("{name} {verb} version {version} ({}).\n", synced.bundle);
    text += &diff_text(&synced.diff, screen);
    if synced.dry_run {
        return text;
    }
    for build in &synced.builds {
        text += &format!("  building {}: {}\n", build.component, build.id);
    }
    if synced.builds.is_empty() {
        text += "  nothing to build\n";
    }
    text
}

/// Formats the git references of a version, one per line.
pub(crate) fn sources(version: &ConfigVersion, screen: &Screen) -> String {
    let mut text = String::new();
    for source in &version.sources {
        let result = match (&source.commit, &source.detail) {
            (Some(commit), _) => commit.clone(),
            (None, Some(detail)) => format!("{}: {detail}", screen.state(&source.state)),
            (None, None) => screen.state(&source.state),
        };
        text += &format!("  source     {} at {}: {result}\n", source.repo, source.reference);
    }
    text
}

/// Formats the commits of a version for a table: `main 1234567, v2 resolving`.
pub(crate) fn commits(version: &ConfigVersion) -> String {
    let shown = version.sources.iter().map(|source| match &source.commit {
        Some(commit) => format!("{} {}", source.reference, commit.get(..7).unwrap_or(commit)),
        None => format!("{} {}", source.reference, source.state),
    });
    let shown: Vec<String> = shown.collect();
    if shown.is_empty() { "-".into() } else { shown.join(", ") }
}

/// Formats a diff: one change per line, its fields below it.
pub(crate) fn diff_text(diff: &Diff, screen: &Screen) -> String {
    let version =
        |v: Option<u32>, none: &str| v.map_or(none.to_owned(), |v| format!("version {v}"));
    let (from, to) = (version(diff.from, "no version"), version(diff.to, "this directory"));
    let mut text = match diff.changes.is_empty() {
        true => format!("No changes from {from} to {to}\n"),
        false => format!("From {from} to {to}:\n"),
    };
    for change in &diff.changes {
        text += &change_text(change, screen);
    }
    text += &impact_text(diff, screen);
    text + &ignored_settings_text(&diff.ignored_settings)
}

/// Formats settings that this release ignores, one per line. Empty if there are none.
pub(crate) fn ignored_settings_text(settings: &[Diagnostic]) -> String {
    if settings.is_empty() {
        return String::new();
    }
    let mut text = "Settings without an effect in this release:\n".to_owned();
    for setting in settings {
        let line = setting.line.map(|line| format!(":{line}")).unwrap_or_default();
        text += &format!("  {} (first at {}{line})\n", setting.message, setting.file);
    }
    text
}

/// Formats the impact on installs, one install per line.
fn impact_text(diff: &Diff, screen: &Screen) -> String {
    if diff.impact.is_empty() {
        return String::new();
    }
    let mut text = "Impact on installs:\n".to_owned();
    let longest = diff.impact.iter().map(|impact| impact.name.len()).max().unwrap_or_default();
    for Impact { name, config_version, provisioned, plans, problem, .. } in &diff.impact {
        let of = |operation: &str| -> Vec<&str> {
            let all = plans.iter().filter(|planned| planned.operation == operation);
            all.map(|planned| planned.name.as_str()).collect()
        };
        let (applied, destroyed) = (of("apply"), of("destroy"));
        let mut parts = vec![];
        if let Some(problem) = problem {
            parts.push(format!("{}: {problem}", screen.paint(Tone::Bad, "cannot deploy")));
        } else if !provisioned {
            parts.push("not provisioned yet".to_owned());
        } else if plans.is_empty() {
            parts.push("no changes".to_owned());
        }
        if *provisioned && !applied.is_empty() {
            parts.push(format!("plans {}", applied.join(", ")));
        }
        if *provisioned && !destroyed.is_empty() {
            parts.push(format!("{} {}", screen.paint(Tone::Bad, "destroys"), destroyed.join(", ")));
        }
        text += &format!("  {name:longest$}  at version {config_version}: {}\n", parts.join("; "));
    }
    if let Some(more) = diff.remaining_installs {
        text += &format!("  and {more} more that were not evaluated\n");
    }
    text
}

fn change_text(change: &Change, screen: &Screen) -> String {
    let (sign, tone) = match change.change.as_str() {
        "added" => ("+", Tone::Good),
        "removed" => ("-", Tone::Bad),
        _ => ("~", Tone::Attention),
    };
    let named = match change.kind == change.name {
        true => change.name.clone(),
        false => format!("{} {}", change.kind, change.name),
    };
    let mut text = format!("  {} {named}\n", screen.paint(tone, sign));
    for field in &change.fields {
        let value = |v: &Option<String>| v.clone().unwrap_or_else(|| "(absent)".into());
        let values = match (&field.before, &field.after) {
            (None, None) => "contents differ".into(),
            (before, after) => format!("{} → {}", value(before), value(after)),
        };
        text += &format!("      {}: {values}\n", field.field);
    }
    text
}

/// Formats a warning with its location in a file.
pub(crate) fn warning(warning: &Diagnostic, screen: &Screen) -> String {
    let text = finding_text(&pack::as_field(warning));
    format!("{}{}", screen.paint(Tone::Attention, "warning:"), text.trim_end())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::render::Output;

    #[test]
    fn diff_has_one_line_per_field() {
        let diff = serde_json::from_value(json!({"from": 1, "changes": [
            {"change": "changed", "kind": "input", "name": "size",
             "fields": [{"field": "default", "before": "2", "after": "3"}]},
            {"change": "added", "kind": "sandbox", "name": "sandbox"},
            {"change": "changed", "kind": "component", "name": "cache", "fields": [{"field": "source"}]},
            {"change": "removed", "kind": "action", "name": "smoke", "fields": []},
        ]}));
        let expected = "\
From version 1 to this directory:
  ~ input size
      default: 2 → 3
  + sandbox
  ~ component cache
      source: contents differ
  - action smoke\n";
        let screen = Screen::new(Output::Table, true, true);
        assert_eq!(diff_text(&diff.unwrap(), &screen), expected);
        let same = Diff { from: Some(2), to: Some(1), ..Diff::default() };
        assert_eq!(diff_text(&same, &screen), "No changes from version 2 to version 1\n");
    }
}
