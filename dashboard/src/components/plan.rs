//! Plan of a step: its counts, and its details before and after.
use maud::{Markup, html};
use schemas::{
    control::runs::{DetailsState, Plan, StepPlanDetails},
    plugin::{Action, AttributeDetails, DetailValue, PlanDetails, ResourceDetails},
};

use super::text;

/// Numbers of resources that a plan creates, changes and destroys.
pub(crate) fn counts(plan: &Plan) -> Markup {
    html! {
        @if plan.noop {
            span.muted { "no changes" }
        } @else {
            (changes(plan.add, plan.change, plan.destroy))
        }
    }
}

/// Numbers of resources to create, change and destroy.
pub(crate) fn changes(add: u64, change: u64, destroy: u64) -> Markup {
    // A zero has no color, so that the eye finds what changes.
    let class = |count: u64, name: &'static str| if count > 0 { name } else { "zero" };
    html! {
        span.counts {
            span class=(class(add, "add")) { "+" (add) " add" }
            span class=(class(change, "change")) { "~" (change) " change" }
            span class=(class(destroy, "destroy")) { "−" (destroy) " destroy" }
        }
    }
}

/// Details of a plan, folded by resource. `step` makes the ids of the folds unique. A search shows only the resources
/// that contain its text.
pub(crate) fn details(step: &str, details: &StepPlanDetails, search: Option<&str>) -> Markup {
    html! {
        @match (details.state, &details.details) {
            (DetailsState::Available, Some(plan)) => (plan_details(step, plan, search)),
            (DetailsState::Erased, _) => { p.muted { "The data of the install was erased." } }
            (DetailsState::None | DetailsState::Available, _) => { p.muted { "The plan has no details." } }
        }
    }
}

/// Details that are available.
pub(crate) fn plan_details(step: &str, plan: &PlanDetails, search: Option<&str>) -> Markup {
    let all = plan.resources.len() + plan.outputs.len();
    let shown = matching(plan.resources.iter().chain(&plan.outputs), search);
    html! {
        div.diff {
            @if search.is_some() { p.muted { (shown.len()) " of " (text::count(all as u64, "resource")) " match." } }
            @for (n, resource) in shown { (resource_details(&format!("{step}-{n}"), resource, search.is_some())) }
            @if plan.omitted > 0 { p.muted { (text::count(plan.omitted, "more resource")) " omitted because of the size." } }
        }
    }
}

/// Resources that contain the text, in upper or lower case, with their numbers in the plan.
fn matching<'d>(
    all: impl Iterator<Item = &'d ResourceDetails>,
    search: Option<&str>,
) -> Vec<(usize, &'d ResourceDetails)> {
    let search = search.map(str::to_lowercase);
    let contains = |text: &str| search.as_ref().is_none_or(|of| text.to_lowercase().contains(of));
    let value = |value: &Option<DetailValue>| match value {
        Some(DetailValue::Value(value)) => contains(&text::value(value)),
        Some(DetailValue::Truncated { text, .. }) => contains(text),
        Some(DetailValue::KnownAfterApply | DetailValue::Sensitive) | None => false,
    };
    let attribute =
        |of: &AttributeDetails| contains(&of.path) || value(&of.before) || value(&of.after);
    let of = |(_, resource): &(usize, &ResourceDetails)| {
        contains(&resource.address) || resource.attributes.iter().any(attribute)
    };
    all.enumerate().filter(of).collect()
}

fn resource_details(id: &str, resource: &ResourceDetails, is_open: bool) -> Markup {
    let (class, word) = action(resource);
    html! {
        details id=(id) open[is_open] {
            summary { span class=(class) { (word) } " " code { (resource.address) } }
            table {
                thead { tr { th scope="col" { "Attribute" } th scope="col" { "Before" } th scope="col" { "After" } } }
                tbody {
                    @for attribute in &resource.attributes { (attribute_row(attribute)) }
                }
            }
            @if resource.omitted > 0 { p.muted { (text::count(resource.omitted, "more attribute")) " omitted because of the size." } }
        }
    }
}

fn action(resource: &ResourceDetails) -> (&'static str, &'static str) {
    match resource.action {
        Action::Create => ("add", "create"),
        Action::Adopt => ("add", "adopt"),
        Action::Update => ("change", "update"),
        Action::Delete => ("destroy", "delete"),
        Action::Replace => ("destroy", "replace"),
        Action::Forget => ("destroy", "forget"),
    }
}

fn attribute_row(attribute: &AttributeDetails) -> Markup {
    html! {
        tr {
            td {
                (attribute.path)
                @if attribute.replaces { " " span.destroy { "forces replacement" } }
            }
            td { (shown(attribute.before.as_ref())) }
            td { (shown(attribute.after.as_ref())) }
        }
    }
}

fn shown(value: Option<&DetailValue>) -> Markup {
    html! {
        @match value {
            None => { span.muted { "–" } }
            Some(DetailValue::Value(value)) => { (text::value(value)) }
            Some(DetailValue::Truncated { text, size_bytes }) => { (text) span.muted { " … " (size_bytes) " bytes" } }
            Some(DetailValue::KnownAfterApply) => { span.muted { "known after apply" } }
            Some(DetailValue::Sensitive) => { span.muted { "sensitive" } }
        }
    }
}
