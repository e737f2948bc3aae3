//! Published plugins, and the versions of one.
use maud::{Markup, html};
use schemas::control::{Page, plugins::Plugin};

use super::runs::next_page;
use crate::{
    components,
    frame::{self, Caller, Section, Updates},
};

/// Plugins by name.
#[must_use]
pub fn plugins(caller: &Caller, page: &Page<Plugin>) -> Markup {
    let content = html! {
        nav.crumbs aria-label="Breadcrumbs" { a href="/ui/apps" { "Apps" } }
        (frame::title(caller, &Updates::None, "Plugins", &html! {}))
        section.panel aria-label="Plugins" {
            @if page.items.is_empty() {
                (components::empty("No plugin is published. A plugin implements a component type of your own.", &["stead", "plugins", "push", "DIRECTORY"]))
            } @else {
                div.scroll tabindex="0" role="region" aria-label="Plugins" {
                    table {
                        thead { tr { th scope="col" { "Plugin" } th scope="col" { "Newest version" } th scope="col" { "Platforms" } th scope="col" { "Publisher" } th scope="col" { "Published" } } }
                        tbody {
                            @for plugin in &page.items {
                                @let newest = plugin.versions.first();
                                tr {
                                    td.name { a href={ "/ui/plugins/" (components::encoded(&plugin.name)) } { (plugin.name) } }
                                    td { @if let Some(newest) = newest { (newest.version) } }
                                    td { @if let Some(newest) = newest { (newest.platforms.join(", ")) } }
                                    td.long { @if let Some(newest) = newest { code { (newest.publisher) } } }
                                    td.fit { @if let Some(newest) = newest { (components::time(caller.now, newest.published_at)) } }
                                }
                            }
                        }
                    }
                }
            }
            (next_page("/ui/plugins", &[], page.next.as_deref()))
        }
    };
    frame::page(caller, Section::Apps, "Plugins", &content)
}

/// One plugin with its versions, newest first.
#[must_use]
pub fn plugin(caller: &Caller, plugin: &Plugin) -> Markup {
    let content = html! {
        nav.crumbs aria-label="Breadcrumbs" { a href="/ui/apps" { "Apps" } span { "/" } a href="/ui/plugins" { "Plugins" } }
        (frame::title(caller, &Updates::None, &plugin.name, &html! {}))
        section.panel aria-label="Versions" {
            header { h2 { "Versions" } span.muted { "Config versions that are published from now on use the first one." } }
            div.scroll tabindex="0" role="region" aria-label="Versions" {
                table {
                    thead { tr { th scope="col" { "Version" } th scope="col" { "Published" } th scope="col" { "Platforms" } th.number scope="col" { "Bytes" } th scope="col" { "Digest" } th scope="col" { "Publisher" } } }
                    tbody {
                        @for version in &plugin.versions {
                            tr {
                                td.name { (version.version) }
                                td.fit { (components::time(caller.now, version.published_at)) }
                                td { (version.platforms.join(", ")) }
                                td.number { (version.size_bytes) }
                                td.long { code { (version.digest) } }
                                td.long { code { (version.publisher) } }
                            }
                        }
                    }
                }
            }
        }
    };
    frame::page(caller, Section::Apps, &plugin.name, &content)
}
