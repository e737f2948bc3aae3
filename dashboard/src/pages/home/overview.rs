//! Versions of the installs, and the runs of the last days.
use chrono::NaiveDate;
use maud::{Markup, html};

use crate::components;

/// Config versions that the installs of an app follow.
#[derive(Debug, Clone)]
pub struct AppVersions {
    /// Id of the app.
    pub app: String,
    /// Name of the app.
    pub name: String,
    /// Newest version of the app.
    pub newest: u32,
    /// Versions, newest first, each with the number of installs that follow it.
    pub counts: Vec<(u32, u64)>,
}

/// Runs that were requested on one day.
#[derive(Debug, Clone)]
pub struct RunDay {
    /// The day in UTC.
    pub day: NaiveDate,
    /// Number of runs that succeeded.
    pub succeeded: u64,
    /// Number of runs that failed.
    pub failed: u64,
    /// Number of all other runs.
    pub other: u64,
}

/// Height of the bars in the strip.
const HEIGHT: u64 = 56;
/// Width of a day in the strip.
const WIDTH: u64 = 34;

/// Table of apps with their versions.
pub(super) fn versions(apps: &[AppVersions], is_partial: bool) -> Markup {
    html! {
        section.panel id="versions" aria-labelledby="versions-heading" {
            header { h2 id="versions-heading" { "Versions of the installs" } a.more href="/ui/installs" { "View all installs" } }
            div.scroll tabindex="0" role="region" aria-label="Versions of the installs" {
                table {
                    thead { tr { th scope="col" { "App" } th scope="col" { "Installs of each version" } } }
                    tbody {
                        @for app in apps {
                            tr {
                                td.name { a href={ "/ui/apps/" (app.app) } { (app.name) } }
                                td { div.row { @for (version, installs) in &app.counts { (cell(app, *version, *installs)) } } }
                            }
                        }
                    }
                }
            }
            @if is_partial { div.body { p.muted { "Only the oldest 1,000 installs and the oldest 50 apps are counted." } } }
        }
    }
}

fn cell(app: &AppVersions, version: u32, installs: u64) -> Markup {
    let is_newest = version == app.newest;
    html! {
        span class={ "badge flat " (if is_newest { "ok" } else { "idle" }) } {
            "v" (version) @if is_newest { " (newest)" } ": " (components::count(installs, "install"))
        }
    }
}

/// Bars of the runs per day. The table below has the same numbers.
pub(in crate::pages) fn strip(days: &[RunDay]) -> Markup {
    let total = |day: &RunDay| day.succeeded + day.failed + day.other;
    let most = days.iter().map(total).max().unwrap_or_default().max(1);
    let runs: u64 = days.iter().map(total).sum();
    let failed: u64 = days.iter().map(|day| day.failed).sum();
    let width = WIDTH * days.len() as u64;
    html! {
        section.panel id="days" aria-labelledby="days-heading" {
            header {
                h2 id="days-heading" { "Runs of the last " (days.len()) " days" }
                span.more.muted { (components::count(runs, "run")) ", " (failed) " failed" }
            }
            div.body {
                div.scroll tabindex="0" role="region" aria-label="Runs per day" {
                    svg.days width=(width) height=(HEIGHT + 18) viewBox={ "0 0 " (width) " " (HEIGHT + 18) } aria-hidden="true" focusable="false" {
                        @for (n, day) in (0_u64..).zip(days) { (bar(n * WIDTH, day, most)) }
                    }
                }
                div.row { span.key.ok { "Succeeded" } span.key.fail { "Failed" } span.key { "Other, or not ended" } }
                details id="days-table" {
                    summary { "Numbers of each day" }
                    table {
                        thead { tr { th scope="col" { "Day (UTC)" } th.number scope="col" { "Succeeded" } th.number scope="col" { "Failed" } th.number scope="col" { "Other" } } }
                        tbody {
                            @for day in days.iter().rev() {
                                tr { td { (day.day) } td.number { (day.succeeded) } td.number { (day.failed) } td.number { (day.other) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// One day as a stack: succeeded at the bottom, then other, then failed. A day without runs has a line.
fn bar(x: u64, day: &RunDay, most: u64) -> Markup {
    let height = |count: u64| count * HEIGHT / most;
    let visible = |count: u64| if count > 0 { height(count).max(2) } else { 0 };
    let heights = [day.succeeded, day.other, day.failed].map(visible);
    let mut top = HEIGHT;
    let parts = ["ok", "other", "fail"].into_iter().zip(heights).map(|(class, height)| {
        top = top.saturating_sub(height);
        (class, top, height)
    });
    html! {
        g {
            title { (day.day) ": " (day.succeeded) " succeeded, " (day.failed) " failed, " (day.other) " other" }
            rect.base x=(x + 3) y=(HEIGHT) width=(WIDTH - 6) height="1" {}
            @for (class, y, height) in parts {
                @if height > 0 { rect class=(class) x=(x + 3) y=(y) width=(WIDTH - 6) height=(height) {} }
            }
            text x=(x + WIDTH / 2) y=(HEIGHT + 14) { (day.day.format("%d")) }
        }
    }
}
