//! One app: its config versions, newest first.
use maud::{Markup, html};
use schemas::control::{
    Page,
    apps::{App, ConfigVersion},
};

use super::runs::next_page;
use crate::{
    components,
    frame::{self, Caller, Section, Updates},
};

/// App page.
#[must_use]
pub fn app(caller: &Caller, app: &App, versions: &Page<ConfigVersion>) -> Markup {
    let content = html! {
        nav.crumbs aria-label="Breadcrumbs" { a href="/ui/apps" { "Apps" } }
        (frame::title(caller, &Updates::None, &app.name, &html! { a href={ "/ui/installs?app=" (app.id) } { (components::count(app.installs, "install")) } }))
        @if app.version > 1 { (super::diff::chooser(app, app.version - 1, app.version)) }
        @for version in &versions.items { (version_panel(caller, version)) }
        (next_page(&format!("/ui/apps/{}", app.id), &[], versions.next.as_deref()))
    };
    frame::page(caller, Section::Apps, &app.name, &content)
}

fn version_panel(caller: &Caller, version: &ConfigVersion) -> Markup {
    html! {
        section.panel aria-label={ "Version " (version.version) } {
            header {
                h2 { "Version " (version.version) }
                (components::badge(&version.state))
                span.more.muted {
                    (version.published_by_name.as_deref().unwrap_or(&version.published_by)) ", "
                    (components::time(caller.now, version.published_at))
                }
            }
            div.body {
                @for source in &version.sources {
                    @if let Some(detail) = &source.detail { p.note.fail { span { (source.repo) " " code { (source.reference) } ": " (detail) } } }
                }
                details id={ "version-" (version.version) } {
                    summary { (components::count(version.components.len() as u64, "component")) }
                    div.scroll tabindex="0" role="region" aria-label={ "Components of version " (version.version) } {
                        table {
                            thead { tr { th scope="col" { "Component" } th scope="col" { "Type" } th scope="col" { "Source" } th scope="col" { "Commit" } } }
                            tbody {
                                @for component in &version.components {
                                    tr {
                                        td.name { (component.name) }
                                        td { code { (component.kind) } }
                                        td { @match &component.git { Some(git) => (git.repo.to_string()), None => "app directory" } }
                                        td.fit { @if let Some(commit) = &component.commit { code title=(commit) { (commit.get(..12).unwrap_or(commit)) } } }
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
