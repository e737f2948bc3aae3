//! Differences between two config versions, and their impact on installs.
use maud::{Markup, html};
use schemas::control::apps::{Change, Diff, FieldChange, Impact, InputDifference};

use super::text;

/// Changes of the config. `id` makes the ids of the folds unique.
pub(crate) fn changes(id: &str, diff: &Diff) -> Markup {
    html! {
        @if diff.changes.is_empty() { p.muted { "The versions have the same configuration." } }
        div.diff {
            @for (n, change) in diff.changes.iter().enumerate() { (one(&format!("{id}-{n}"), change)) }
        }
        @for ignored in &diff.ignored_settings {
            p.note.wait { span { code { (ignored.file) @if let Some(line) = ignored.line { ":" (line) } } ": " (ignored.message) } }
        }
    }
}

fn one(id: &str, change: &Change) -> Markup {
    let class = match change.change.as_str() {
        "added" => "add",
        "removed" => "destroy",
        _ => "change",
    };
    let heading = html! {
        span class=(class) { (change.change) } " " (text::kind(&change.kind)) " " code { (change.name) }
    };
    html! {
        @if change.fields.is_empty() { p { (heading) } }
        @else {
            details id=(id) open {
                summary { (heading) }
                table {
                    thead { tr { th scope="col" { "Field" } th scope="col" { "Before" } th scope="col" { "After" } } }
                    tbody { @for field in &change.fields { (field_row(field)) } }
                }
            }
        }
    }
}

fn field_row(field: &FieldChange) -> Markup {
    let is_hidden = field.before.is_none() && field.after.is_none();
    html! {
        tr {
            td { (field.field) }
            @if is_hidden { td colspan="2" { "changed; the values are not shown" } }
            @else {
                td.destroy { (field.before.as_deref().unwrap_or("(none)")) }
                td.add { (field.after.as_deref().unwrap_or("(none)")) }
            }
        }
    }
}

/// Operations that a version causes in an install, in the planned order.
pub(crate) fn impact(impact: &Impact) -> Markup {
    html! {
        @if let Some(problem) = &impact.problem { p.note.fail { (problem) } }
        @else if impact.plans.is_empty() { p.muted { "No component changes." } }
        @else {
            ul.plain {
                @for plan in &impact.plans {
                    li {
                        span class={ "diff-word " (if plan.operation == "destroy" { "destroy" } else { "change" }) } { (plan.operation) }
                        " " code { (plan.name) }
                    }
                }
            }
        }
    }
}

/// Inputs whose values differ from those that the install had at the other version.
pub(crate) fn inputs(version: u32, inputs: &[InputDifference]) -> Markup {
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "(not set)".to_owned());
    html! {
        div.diff {
            table {
                thead { tr { th scope="col" { "Input" } th scope="col" { "At version " (version) } th scope="col" { "Now" } } }
                tbody {
                    @for input in inputs {
                        tr { td { (input.name) } td { (shown(&input.before)) } td { (shown(&input.after)) } }
                    }
                }
            }
        }
    }
}
