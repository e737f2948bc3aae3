//! Forms that decide several plans of a run at once.
use std::collections::BTreeMap;

use maud::{Markup, html};
use schemas::control::runs::Step;

use super::run::{RunPage, hides_details};
use crate::frame::{self, Caller};

/// Forms for all waiting plans of a run, and for each layer of its graph. The forms name the digest of each plan, and
/// cover no plan whose details the page does not show. Empty if fewer than two plans wait.
pub(super) fn forms(caller: &Caller, page: &RunPage) -> Markup {
    let waits = |step: &&Step| step.state == "waiting_for_approval" && step.plan.is_some();
    let waiting: Vec<&Step> = page.run.dag.iter().filter(waits).collect();
    let shown: Vec<&Step> =
        waiting.iter().copied().filter(|step| !hides_details(page, step)).collect();
    let hidden = waiting.len() - shown.len();
    let mut layers: BTreeMap<u32, Vec<&Step>> = BTreeMap::new();
    for step in &shown {
        layers.entry(step.layer).or_default().push(step);
    }
    let may = caller.may(&["approver"]) && !page.run.awaits_plans && page.search.is_none();
    html! {
        @if may && shown.len() > 1 {
            section.panel aria-label="Decide together" {
                header { h2 { (shown.len()) " plans wait for approval" } }
                div.body {
                    (form(caller, page, "all", &format!("all {} plans", shown.len()), &shown))
                    @if layers.len() > 1 {
                        details id="layers" {
                            summary { "Decide one layer" }
                            @for (layer, steps) in layers.iter().filter(|(_, steps)| steps.len() > 1) {
                                (form(caller, page, &format!("layer-{layer}"), &format!("the {} plans of layer {}", steps.len(), layer + 1), steps))
                            }
                        }
                    }
                    @if hidden > 0 {
                        p.muted { "Without the " (crate::components::count(hidden as u64, "plan")) " whose details this page does not show. Decide those below." }
                    }
                }
            }
        }
    }
}

fn form(caller: &Caller, page: &RunPage, id: &str, what: &str, steps: &[&Step]) -> Markup {
    let plans = steps.iter().filter_map(|step| Some((step, &step.plan.as_ref()?.digest)));
    // The form is disabled as soon as one of the plans changes.
    let all: Vec<String> = plans.clone().map(|(_, digest)| digest.to_string()).collect();
    html! {
        form.inline method="post" action={ "/ui/runs/" (page.run.run.id) "/decide-all" } data-plan=(all.join(" ")) id={ "decide-" (id) } {
            (frame::change_fields(caller, id))
            @for (step, digest) in plans { input type="hidden" name={ "plan." (step.id) } value=(digest); }
            label { "Reason for " (what) input type="text" name="reason" required maxlength="2000"; }
            button.primary type="submit" name="decision" value="approve" { "Approve " (what) }
            button.danger type="submit" name="decision" value="deny" { "Deny " (what) }
        }
    }
}
