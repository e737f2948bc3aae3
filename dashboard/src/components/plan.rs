//! Plan of a step: its counts, and its details before and after.
use maud::{Markup, html};
use schemas::{
    control::runs::{DetailsState, Plan, StepPlanDetails},
    plugin::{Action, AttributeDetails, DetailValue, ResourceDetails},
};

use super::text;

/// Numbers of resources that a plan creates, changes and destroys.
pub(crate) fn counts(plan: &Plan) -> Markup {
    html! {
        @if plan.noop {
            span.muted { "no changes" }
        } @else {
            span.counts {
                span.add { "+" (plan.add) " add" }
                span.change { "~" (plan.change) " change" }
                span.destroy { "−" (plan.destroy) " destroy" }
            }
        }
    }
}

/// Details of a plan, folded by resource. `step` makes the ids of the folds unique.
pub(crate) fn details(step: &str, details: &StepPlanDetails) -> Markup {
    html! {
        @match (details.state, &details.details) {
            (DetailsState::Available, Some(plan)) => {
                div.diff {
                    @for (n, resource) in plan.resources.iter().chain(&plan.outputs).enumerate() {
                        (resource_details(&format!("{step}-{n}"), resource))
                    }
                    @if plan.omitted > 0 { p.muted { (text::count(plan.omitted, "more resource")) " omitted because of the size." } }
                }
            }
            (DetailsState::Erased, _) => { p.muted { "The data of the install was erased." } }
            (DetailsState::None | DetailsState::Available, _) => { p.muted { "The plan has no details." } }
        }
    }
}

fn resource_details(id: &str, resource: &ResourceDetails) -> Markup {
    let (class, word) = action(resource);
    html! {
        details id=(id) {
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
