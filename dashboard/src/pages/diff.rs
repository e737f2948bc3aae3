//! Difference of two versions of an app, and the move of an install to another version.
use maud::{Markup, html};
use schemas::control::{
    apps::{App, Diff},
    installs::Install,
};

use super::change::{crumbs, plan_all, reason};
use crate::{
    components,
    frame::{self, Caller, Section, Updates},
};

/// Content of the page that moves an install to another version.
#[derive(Debug, Clone)]
pub struct UpgradePage {
    /// The install.
    pub install: Install,
    /// Version to move to.
    pub to: u32,
    /// True to restore the inputs that the install had at that version.
    pub restores_inputs: bool,
    /// Differences from the install's version, with the impact on this install.
    pub diff: Diff,
}

/// Content of the page that compares two versions of an app.
#[derive(Debug, Clone)]
pub struct DiffPage {
    /// The app.
    pub app: App,
    /// Differences, with the impact on the installs of the app.
    pub diff: Diff,
}

/// Upgrade or rollback of an install: the differences first, then the form.
#[must_use]
pub fn upgrade(caller: &Caller, page: &UpgradePage) -> Markup {
    let (install, to) = (&page.install, page.to);
    let is_rollback = to < install.config_version;
    let verb = if is_rollback { "Roll back" } else { "Upgrade" };
    let heading = format!("{verb} {} to version {to}", install.name);
    let impact = page.diff.impact.first();
    let problem = impact.and_then(|impact| impact.problem.as_ref());
    let content = html! {
        (crumbs(install))
        (frame::title(caller, &Updates::None, &heading, &html! { span.muted { "now at version " (install.config_version) } }))
        div.columns {
            section.panel aria-label="Changes" {
                header { h2 { "Changes from version " (install.config_version) " to " (to) } }
                div.body { (components::diff::changes("change", &page.diff)) }
            }
            div.stack {
                @if let Some(impact) = impact {
                    section.panel aria-label="Impact" {
                        header { h2 { "Impact on this install" } }
                        div.body { (components::diff::impact(impact)) }
                    }
                    @if is_rollback { (restored(page, &impact.inputs)) }
                }
                section.panel aria-label=(verb) {
                    header { h2 { (verb) } }
                    div.body {
                        @if to == install.config_version { p.muted { "The install already follows this version." } }
                        @else if !caller.may(&[]) { p.muted { "Only owners can move an install to another version." } }
                        @else if problem.is_some() { p.muted { "The install cannot follow this version." } }
                        @else { (form(caller, page, verb)) }
                    }
                }
            }
        }
    };
    frame::page(caller, Section::Installs, &heading, &content)
}

/// Choice of the inputs of a rollback.
fn restored(page: &UpgradePage, inputs: &[schemas::control::apps::InputDifference]) -> Markup {
    let url = format!("/ui/installs/{}/upgrade?to={}", page.install.id, page.to);
    html! {
        section.panel aria-label="Inputs" {
            header { h2 { "Inputs" } }
            div.body {
                @if page.restores_inputs {
                    p { "The rollback restores the inputs of version " (page.to) "." }
                    p { a href=(url) { "Keep the current inputs instead" } }
                } @else if inputs.is_empty() { p.muted { "The inputs are those of version " (page.to) "." } }
                @else {
                    p { "The rollback keeps the current inputs. These differ:" }
                    (components::diff::inputs(page.to, inputs))
                    p { a href={ (url) "&restore_inputs=true" } { "Restore the inputs of version " (page.to) " instead" } }
                }
            }
        }
    }
}

fn form(caller: &Caller, page: &UpgradePage, verb: &str) -> Markup {
    html! {
        @if page.install.auto_approve {
            p.note.wait { "This install approves its plans automatically: the change is applied without a review." }
        }
        form.stacked id="upgrade" method="post" action={ "/ui/installs/" (page.install.id) "/upgrade" } {
            (frame::change_fields(caller, "upgrade"))
            input type="hidden" name="from" value=(page.install.config_version);
            input type="hidden" name="to" value=(page.to);
            @if page.restores_inputs { input type="hidden" name="restore_inputs" value="true"; }
            (reason())
            (plan_all())
            div { button.primary type="submit" { (verb) } }
        }
    }
}

/// Comparison of two versions of an app.
#[must_use]
pub fn diff(caller: &Caller, page: &DiffPage) -> Markup {
    let DiffPage { app, diff } = page;
    let (from, to) = (diff.from.unwrap_or_default(), diff.to.unwrap_or_default());
    let heading = format!("{}: version {from} to {to}", app.name);
    let content = html! {
        nav.crumbs aria-label="Breadcrumbs" {
            a href="/ui/apps" { "Apps" } span { "/" } a href={ "/ui/apps/" (app.id) } { (app.name) }
        }
        (frame::title(caller, &Updates::None, &heading, &html! {}))
        (chooser(app, from, to))
        div.columns {
            section.panel aria-label="Changes" {
                header { h2 { "Changes" } }
                div.body { (components::diff::changes("change", diff)) }
            }
            section.panel aria-label="Impact" {
                header { h2 { "Impact of version " (to) " on installs" } }
                @if diff.impact.is_empty() { (components::empty("The app has no installs.", &[])) }
                @for impact in &diff.impact {
                    article.step {
                        div.line {
                            a.name href={ "/ui/installs/" (impact.install) } { (impact.name) }
                            span.muted { "v" (impact.config_version) }
                            @if caller.may(&[]) && impact.problem.is_none() && impact.config_version != to {
                                a.end href={ "/ui/installs/" (impact.install) "/upgrade?to=" (to) } {
                                    "Upgrade" span.visually-hidden { " " (impact.name) }
                                }
                            }
                        }
                        (components::diff::impact(impact))
                    }
                }
                @if let Some(more) = diff.remaining_installs { p.muted.body { (components::count(more, "more install")) } }
            }
        }
    };
    frame::page(caller, Section::Apps, &heading, &content)
}

/// Form that chooses two versions to compare.
pub(super) fn chooser(app: &App, from: u32, to: u32) -> Markup {
    html! {
        form.inline.compare method="get" action={ "/ui/apps/" (app.id) "/diff" } {
            label { "From version" input type="text" inputmode="numeric" name="from" required value=(from); }
            label { "To version" input type="text" inputmode="numeric" name="to" required value=(to); }
            button type="submit" { "Compare" }
        }
    }
}
