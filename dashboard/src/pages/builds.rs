//! Builds of an app, and one build with its log.
use chrono::TimeDelta;
use maud::{Markup, html};
use schemas::control::{
    Page,
    apps::App,
    builds::{Artifact, Build, BuildsQuery},
    jobs::Job,
};

use super::{
    job,
    log::{self, LogPage},
    runs::next_page,
};
use crate::{
    components,
    frame::{self, Caller, Section, Updates},
};

const STATES: [&str; 6] = ["requested", "resolving", "queued", "running", "succeeded", "failed"];

/// Builds of one app, newest first.
#[must_use]
pub fn builds(caller: &Caller, app: &App, query: &BuildsQuery, page: &Page<Build>) -> Markup {
    let path = format!("/ui/apps/{}/builds", app.id);
    let heading = format!("Builds of {}", app.name);
    let content = html! {
        (crumbs(&app.id.to_string(), &app.name))
        (frame::title(caller, &Updates::of_types(&["build"]), &heading, &html! {}))
        form.inline method="get" action=(path) role="search" {
            label {
                "State"
                select name="state" {
                    option value="" { "Any" }
                    @for state in STATES {
                        option value=(state) selected[query.state.as_deref() == Some(state)] { (components::kind(state)) }
                    }
                }
            }
            button type="submit" { "Filter" }
        }
        section.panel aria-label="Builds" {
            @if page.items.is_empty() { (components::empty("No builds match.", &["stead", "apps", "sync", "DIRECTORY"])) }
            @else { (table(caller, &page.items)) }
            (next_page(&path, &[("state", query.state.as_deref())], page.next.as_deref()))
        }
    };
    frame::page(caller, Section::Apps, &heading, &content)
}

fn crumbs(app: &str, name: &str) -> Markup {
    html! {
        nav.crumbs aria-label="Breadcrumbs" { a href="/ui/apps" { "Apps" } span { "/" } a href={ "/ui/apps/" (app) } { (name) } }
    }
}

/// Table of builds.
pub(super) fn table(caller: &Caller, builds: &[Build]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Builds" {
            table {
                thead {
                    tr {
                        th scope="col" { "Component" }
                        th scope="col" { "State" }
                        th.number scope="col" { "Version" }
                        th scope="col" { "Source" }
                        th scope="col" { "Duration" }
                        th scope="col" { "Requested by" }
                        th scope="col" { "Requested" }
                    }
                }
                tbody id="builds-rows" data-rows="rows" {
                    @for build in builds {
                        tr id=(build.id) {
                            td.name { a href={ "/ui/builds/" (build.id) } { (build.component_name) } }
                            td.fit { (components::badge(&build.state)) }
                            td.number { "v" (build.config_version) }
                            td { (source(build)) }
                            td.fit { (duration(caller, build)) }
                            td.actor { (requester(build)) }
                            td.fit { (components::time(caller.now, build.requested_at)) }
                        }
                    }
                }
            }
        }
    }
}

fn requester(build: &Build) -> &str {
    build.requested_by_name.as_deref().unwrap_or(&build.requested_by)
}

fn source(build: &Build) -> Markup {
    let commit = build.commit.as_deref();
    html! {
        @if let Some(image) = &build.image { code { (image.reference) } }
        @else if let Some(git) = &build.git {
            (git.repo.to_string())
            @if let Some(commit) = commit { " " code title=(commit) { (commit.get(..12).unwrap_or(commit)) } }
        } @else { "app directory" }
    }
}

/// Time from the request to the end, or until now.
fn duration(caller: &Caller, build: &Build) -> Markup {
    let taken = build.ended_at.unwrap_or(caller.now).signed_duration_since(build.requested_at);
    html! { (length(taken)) @if build.ended_at.is_none() { span.muted { " so far" } } }
}

fn length(taken: TimeDelta) -> String {
    match taken.num_seconds().max(0) {
        seconds @ 0..=59 => format!("{seconds} s"),
        seconds @ 60..=3_599 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
    }
}

/// One build, with the log of its job.
#[must_use]
pub fn build(caller: &Caller, build: &Build, job: Option<&Job>, page: &LogPage) -> Markup {
    let heading = format!("Build of {}", build.component_name);
    let updates = match job {
        Some(job) => job::updates(job, page),
        None if build.ended_at.is_none() => Updates::Keys(vec![format!("build/{}", build.id)]),
        None => Updates::None,
    };
    let content = html! {
        (crumbs(&build.app.to_string(), &build.app_name))
        (frame::title(caller, &updates, &heading, &components::badge(&build.state)))
        section.panel aria-label="Details" {
            div.body {
                (facts(caller, build))
                @if let Some(waiting) = &build.waiting { p { "Waiting: " (waiting.detail) } }
                @if let Some(reason) = &build.reason {
                    p.note.fail { span { code { (reason) } @if let Some(detail) = &build.detail { " " (detail) } } }
                }
                @if let Some(earlier) = &build.reused_build {
                    p { "Uses the artifact of " a href={ "/ui/builds/" (earlier) } { (components::id(&earlier.to_string())) } ", because the source is the same." }
                }
                @if build.state == "failed" && caller.may(&[]) { (retry(caller, build)) }
            }
        }
        @match job {
            Some(job) => (log::panel(job, page)),
            None => { section.panel aria-label="Log" { header { h2 { "Log" } } (components::empty("The build has no job, so it has no log.", &[])) } }
        }
    };
    frame::page(caller, Section::Apps, &heading, &content)
}

fn facts(caller: &Caller, build: &Build) -> Markup {
    html! {
        dl.facts {
            div { dt { "Version" } dd { "v" (build.config_version) } }
            div { dt { "Type" } dd { code { (build.kind) } } }
            div { dt { "Source" } dd { (source(build)) } }
            div { dt { "Requested by" } dd { (requester(build)) } }
            div { dt { "Requested" } dd { (components::time(caller.now, build.requested_at)) } }
            div { dt { "Duration" } dd { (duration(caller, build)) } }
            @if let Some(job) = &build.job { div { dt { "Job" } dd { a href={ "/ui/jobs/" (job) } { (components::id(&job.to_string())) } } } }
            div { dt { "Id" } dd { (components::id(&build.id.to_string())) } }
        }
        @if let Some(artifact) = &build.artifact { (artifact_facts(artifact)) }
    }
}

fn artifact_facts(artifact: &Artifact) -> Markup {
    html! {
        dl.facts.wide {
            div { dt { "Artifact" } dd { code { (artifact.repository) "@" (artifact.digest) } } }
            div { dt { "Size" } dd { (artifact.size_bytes) " bytes" } }
        }
    }
}

fn retry(caller: &Caller, build: &Build) -> Markup {
    html! {
        form.stacked id="retry" method="post" action={ "/ui/builds/" (build.id) "/retry" } {
            (frame::change_fields(caller, "retry"))
            p.muted { "Publishes the bundle of the newest version again, as the next version, with a new build for each failed one." }
            div { button.primary type="submit" { "Retry the failed builds" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_has_two_units() {
        let texts = [-5, 0, 59, 60, 3_599, 3_661].map(|s| length(TimeDelta::seconds(s)));
        assert_eq!(texts, ["0 s", "0 s", "59 s", "1 min 0 s", "59 min 59 s", "1 h 1 min"]);
    }
}
