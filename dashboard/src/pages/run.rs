//! One run: its preflight, its graph, and the steps with their plans and decisions.
use std::collections::BTreeMap;

use maud::{Markup, html};
use schemas::control::runs::{Decision, Preflight, Run, Step, StepPlanDetails};

use super::{as_of, together};
use crate::{
    components::{self, Node},
    frame::{self, Caller, Section, Updates},
};

/// Content of a run page.
#[derive(Debug, Clone)]
pub struct RunPage {
    /// The run.
    pub run: Run,
    /// Details of plans that wait for an approval, by the id of the step. Empty if the caller may not
    /// read them. Not all of them if many plans wait.
    pub details: BTreeMap<String, StepPlanDetails>,
    /// Text that selects resources of the plans. None for all.
    pub search: Option<String>,
}

/// States after which a run changes no more.
const ENDED: [&str; 5] = ["succeeded", "failed", "denied", "expired", "cancelled"];
/// States after which a step changes no more.
const STEP_ENDED: [&str; 4] = ["succeeded", "failed", "cancelled", "skipped"];
/// States of a run with unfinished steps, which a retry plans again.
const RETRYABLE: [&str; 4] = ["failed", "denied", "expired", "cancelled"];

/// Run page.
#[must_use]
pub fn run(caller: &Caller, page: &RunPage) -> Markup {
    let run = &page.run.run;
    let heading = format!("{} of {}", components::kind(&run.kind), run.install_name);
    let content = html! {
        nav.crumbs aria-label="Breadcrumbs" {
            a href="/ui/installs" { "Installs" } span { "/" } a href={ "/ui/installs/" (run.install) } { (run.install_name) }
        }
        (frame::title(caller, &updates(&page.run), &heading, &components::badge(&run.state)))
        (facts(caller, &page.run))
        @if let Some(preflight) = &page.run.preflight { (preflight_panel(preflight)) }
        @if page.run.dag.len() > 1 {
            section.panel aria-label="Graph" {
                header { h2 { "Graph" } }
                (components::graph("Graph of the steps; the list of steps below has the same content", &nodes(&page.run.dag)))
            }
        }
        (together::forms(caller, page))
        section.panel aria-label="Steps" {
            header { h2 { "Steps" } span.muted { (run.steps_ended) " of " (run.steps) " ended" } }
            @if !page.details.is_empty() { (search_form(page)) }
            @if page.run.dag.is_empty() {
                @if ENDED.contains(&run.state.as_str()) { (components::empty("The run has no steps.", &[])) }
                @else { (components::empty("The run is not planned yet.", &[])) }
            }
            @for step in &page.run.dag { (step_row(caller, page, step)) }
        }
        @if caller.may(&["auditor"]) {
            (as_of::panel(&format!("/ui/runs/{}/as-of", run.id)))
            p { a href={ "/ui/audit/proofs?of=" (run.id) } { "Download a proof of this run" } }
        }
    };
    frame::page(caller, Section::Runs, &heading, &content)
}

/// Maximum number of jobs whose changes a page follows one by one.
const FOLLOWED_JOBS: usize = 20;

/// A step shows why its job waits, so a page follows the jobs that have not ended, and the runners.
fn updates(run: &Run) -> Updates {
    let own =
        [format!("run/{}", run.run.id), format!("install/{}", run.run.install), "runner".into()];
    let is_open = |step: &&Step| !STEP_ENDED.contains(&step.state.as_str());
    let jobs = run.dag.iter().filter(is_open).filter_map(|step| step.job.as_ref());
    let mut jobs: Vec<String> = jobs.map(|job| format!("job/{job}")).collect();
    if jobs.len() > FOLLOWED_JOBS {
        jobs = vec!["job".into()];
    }
    Updates::Keys(own.into_iter().chain(jobs).collect())
}

/// Search in the details of the plans. A decision needs all of them, so a page with a search has no form for it.
fn search_form(page: &RunPage) -> Markup {
    let url = format!("/ui/runs/{}", page.run.run.id);
    html! {
        div.body.search {
            form.inline method="get" action=(url) role="search" {
                label { "Search in the plans" input type="search" name="search" maxlength="200" value=[page.search.as_deref()] placeholder="Resource, attribute or value"; }
                button type="submit" { "Search" }
            }
            @if page.search.is_some() {
                p.note.wait { span { "Only matching resources are shown. " a href=(url) { "Show all" } " to approve or deny a plan." } }
            }
        }
    }
}

fn facts(caller: &Caller, run: &Run) -> Markup {
    let summary = &run.run;
    html! {
        section.panel aria-label="Details" {
            div.body {
                dl.facts {
                    div { dt { "Requested by" } dd { (components::actor(summary.requested_by_name.as_deref().unwrap_or(&summary.requested_by))) } }
                    div { dt { "Requested" } dd { (components::time(caller.now, summary.requested_at)) } }
                    @if let Some(at) = summary.ended_at { div { dt { "Ended" } dd { (components::time(caller.now, at)) } } }
                    @if let Some(version) = summary.config_version { div { dt { "Config version" } dd { "v" (version) } } }
                    @if let Some(action) = &summary.action { div { dt { "Action" } dd { (action) } } }
                    @if let Some(of) = &run.retry_of { div { dt { "Retry of" } dd { (components::run_link(of)) } } }
                    div { dt { "Id" } dd { (components::id(&summary.id.to_string())) } }
                }
                @if let Some(reason) = &summary.reason { p { span.muted { "Reason: " } (reason) } }
                @if run.awaits_plans {
                    p.muted { "This run creates all plans before its first change. Approve or deny them when all are complete." }
                }
                (actions(caller, run))
            }
        }
    }
}

fn nodes(dag: &[Step]) -> Vec<Node<'_>> {
    let subtitle = |step: &Step| {
        format!("{} · {}", components::kind(&step.kind), components::kind(&step.state))
    };
    let depends_on = |step: &Step| step.depends_on.iter().map(ToString::to_string).collect();
    let nodes = dag.iter().map(|step| Node {
        key: step.id.to_string(),
        name: step.name.as_str(),
        subtitle: subtitle(step),
        tone: components::tone(&step.state),
        layer: step.layer as usize,
        depends_on: depends_on(step),
        href: format!("#{}", step.id),
    });
    nodes.collect()
}

/// Cancel and retry, which only owners may request.
fn actions(caller: &Caller, run: &Run) -> Markup {
    let state = run.run.state.as_str();
    let has_failed_step = run.dag.iter().any(|step| step.state == "failed");
    let retryable = RETRYABLE.contains(&state) || has_failed_step;
    html! {
        @if caller.may(&[]) && retryable {
            form.inline id="retry" method="post" action={ "/ui/runs/" (run.run.id) "/retry" } {
                (frame::change_fields(caller, "retry"))
                label { "Reason for the retry (optional)" input type="text" name="reason" maxlength="2000"; }
                button type="submit" { "Retry" }
            }
        }
        @if caller.may(&[]) && !ENDED.contains(&state) && state != "cancelling" {
            details id="cancel" {
                summary { "Cancel this run" }
                form.inline method="post" action={ "/ui/runs/" (run.run.id) "/cancel" } {
                    (frame::change_fields(caller, "cancel"))
                    label { "Reason for the cancellation" input type="text" name="reason" required maxlength="2000"; }
                    button.danger type="submit" { "Cancel the run" }
                }
            }
        }
    }
}

fn preflight_panel(preflight: &Preflight) -> Markup {
    html! {
        section.panel aria-label="Preflight" {
            header {
                h2 { "Preflight" }
                (components::badge(&preflight.state))
                @if let Some(job) = &preflight.job { a.more href={ "/ui/jobs/" (job) } { "Log of the preflight" } }
            }
            @if preflight.reason.is_some() || preflight.waiting.is_some() || !preflight.checks.is_empty() {
                div.body {
                    @if let Some(reason) = &preflight.reason { p { (reason) } }
                    @if let Some(waiting) = &preflight.waiting { p { "Waiting: " (waiting.detail) } }
                    @if !preflight.checks.is_empty() {
                        details id="preflight-checks" open[preflight.state == "failed"] {
                            summary { (components::count(preflight.checks.len() as u64, "check")) }
                            ul.checks {
                                @for check in &preflight.checks {
                                    li {
                                        (components::badge(check.status.as_str()))
                                        span {
                                            @if let Some(component) = &check.component { (component) " · " }
                                            (check.check) " " span.muted { (check.message) }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn step_row(caller: &Caller, page: &RunPage, step: &Step) -> Markup {
    html! {
        article.step id=(step.id) aria-label=(step.name) {
            div.line {
                span.name { (step.name) }
                span.muted { (components::kind(&step.kind)) }
                (components::badge(&step.state))
                @if let Some(plan) = &step.plan { (components::counts(plan)) }
                @if let Some(job) = &step.job {
                    a.end href={ "/ui/jobs/" (job) } { "Log" span.visually-hidden { " of " (step.name) } }
                }
            }
            @if let Some(waiting) = &step.waiting { p.muted { "Waiting: " (waiting.detail) } }
            @if let Some(reason) = &step.reason { p { (reason) } }
            @if let Some(decision) = &step.decision { (decided(caller, decision)) }
            @if let Some(resolution) = &step.resolution {
                p.muted {
                    "resolved as " (resolution.resolution) " by " (resolution.by_name.as_deref().unwrap_or(&resolution.by))
                    " " (components::time(caller.now, resolution.at)) ": " (resolution.reason)
                }
            }
            @if let Some(details) = page.details.get(&step.id.to_string()) { (components::details(&step.id.to_string(), details, page.search.as_deref())) }
            @if caller.may(&["approver"]) && hides_details(page, step) {
                p.note.warn { "This page does not show the details of this plan, because many plans wait. Review them before you decide:" }
                (components::command(&["stead", "runs", "show", &page.run.run.id.to_string(), "--plans", "--details=full"]))
            }
            @if step.state == "waiting_for_approval" && !page.run.awaits_plans && page.search.is_none() { (decision_form(caller, page, step)) }
        }
    }
}

/// Returns true if a plan waits whose details the page does not show.
pub(super) fn hides_details(page: &RunPage, step: &Step) -> bool {
    let has_details = step.plan.as_ref().is_some_and(|plan| plan.has_details);
    let waits = step.state == "waiting_for_approval";
    waits && has_details && !page.details.contains_key(&step.id.to_string())
}

fn decided(caller: &Caller, decision: &Decision) -> Markup {
    html! {
        p.muted {
            (decision.decision) " by " (decision.by_name.as_deref().unwrap_or(&decision.by)) " "
            (components::time(caller.now, decision.at))
            @if let Some(reason) = &decision.reason { ": " (reason) }
        }
    }
}

/// Form that approves or denies exactly the plan that the page shows.
fn decision_form(caller: &Caller, page: &RunPage, step: &Step) -> Markup {
    html! {
        @if let Some(plan) = &step.plan {
            p.muted { "Plan " code { (plan.digest) } }
            @if caller.may(&["approver"]) {
                form.inline method="post" action={ "/ui/runs/" (page.run.run.id) "/decide" } data-plan=(plan.digest) id={ "decide-" (step.id) } {
                    (frame::change_fields(caller, &step.id.to_string()))
                    input type="hidden" name="step" value=(step.id);
                    input type="hidden" name="digest" value=(plan.digest);
                    label { "Reason" input type="text" name="reason" required maxlength="2000"; }
                    button.primary type="submit" name="decision" value="approve" { "Approve" span.visually-hidden { " the plan of " (step.name) } }
                    button.danger type="submit" name="decision" value="deny" { "Deny" span.visually-hidden { " the plan of " (step.name) } }
                }
            } @else { p.muted { "Only approvers and owners can approve or deny this plan." } }
        }
    }
}
