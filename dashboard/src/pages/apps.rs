//! List of apps.
use maud::{Markup, html};
use schemas::control::{Page, apps::App};

use super::runs::next_page;
use crate::{
    components,
    frame::{self, Caller, Section, Updates},
};

/// Apps page.
#[must_use]
pub fn apps(caller: &Caller, page: &Page<App>) -> Markup {
    let content = html! {
        (frame::title(caller, &Updates::of_types(&["app", "install"]), "Apps", &html! { div.actions { a href="/ui/plugins" { "Plugins" } } }))
        section.panel aria-label="Apps" {
            @if page.items.is_empty() {
                (components::empty("No app is published yet.", &["stead", "apps", "sync", "DIRECTORY"]))
            } @else {
                div.scroll tabindex="0" role="region" aria-label="Apps" {
                    table {
                        thead {
                            tr {
                                th scope="col" { "App" }
                                th.number scope="col" { "Version" }
                                th.number scope="col" { "Components" }
                                th.number scope="col" { "Installs" }
                                th scope="col" { "Published" }
                            }
                        }
                        tbody id="apps-rows" data-rows="rows" {
                            @for app in &page.items {
                                tr id=(app.id) {
                                    td.name { a href={ "/ui/apps/" (app.id) } { (app.name) } }
                                    td.number { "v" (app.version) }
                                    td.number { (app.components) }
                                    td.number { a href={ "/ui/installs?app=" (app.id) } { (app.installs) } }
                                    td.fit { @if let Some(at) = app.published_at { (components::time(caller.now, at)) } }
                                }
                            }
                        }
                    }
                }
            }
            (next_page("/ui/apps", &[], page.next.as_deref()))
        }
    };
    frame::page(caller, Section::Apps, "Apps", &content)
}
