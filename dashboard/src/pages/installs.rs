//! List of installs.
use maud::{Markup, html};
use schemas::control::{
    Page,
    installs::{Install, InstallsQuery},
};

use super::runs::next_page;
use crate::{
    components,
    frame::{self, Caller, Section, Updates},
};

/// Installs page, oldest first.
#[must_use]
pub fn installs(caller: &Caller, query: &InstallsQuery, page: &Page<Install>) -> Markup {
    let content = html! {
        (frame::title(caller, &Updates::Events, "Installs", &html! {}))
        form.inline method="get" action="/ui/installs" role="search" {
            label { "App" input type="search" name="app" value=[query.app.as_deref()] placeholder="Name or id"; }
            button type="submit" { "Filter" }
        }
        section.panel aria-label="Installs" {
            @if page.items.is_empty() {
                (components::empty("No installs match.", &["stead", "installs", "create", "APP", "NAME"]))
            } @else { (table(caller, &page.items)) }
            (next_page("/ui/installs", &[("app", query.app.as_deref())], page.next.as_deref()))
        }
    };
    frame::page(caller, Section::Installs, "Installs", &content)
}

fn table(caller: &Caller, installs: &[Install]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Installs" {
            table {
                thead {
                    tr {
                        th scope="col" { "Install" }
                        th scope="col" { "State" }
                        th scope="col" { "App" }
                        th.number scope="col" { "Version" }
                        th.number scope="col" { "Deployed" }
                        th scope="col" { "Runner" }
                        th scope="col" { "Last contact" }
                        th scope="col" { "Created" }
                    }
                }
                tbody id="installs-rows" data-rows="rows" { @for install in installs { (row(caller, install)) } }
            }
        }
    }
}

fn row(caller: &Caller, install: &Install) -> Markup {
    let deployed =
        install.components.iter().filter(|component| component.state == "deployed").count();
    html! {
        tr id=(install.id) {
            td.name { a href={ "/ui/installs/" (install.id) } { (install.name) } }
            td.fit { (components::badge(&install.state)) }
            td { a href={ "/ui/apps/" (install.app) } { (install.app_name) } }
            td.number { "v" (install.config_version) }
            td.number { (deployed) " of " (install.components.len()) }
            td.fit { @match &install.runner_state { Some(state) => (components::badge(state)), None => span.muted { "none" } } }
            td.fit { @if let Some(at) = install.runner_last_contact { (components::time(caller.now, at)) } }
            td.fit { (components::time(caller.now, install.created_at)) }
        }
    }
}
