//! One app: its config versions, newest first.
use maud::{Markup, html};
use schemas::control::{
    Page,
    apps::{App, ConfigVersion},
    builds::Build,
};

use super::runs::next_page;
use crate::{
    components,
    frame::{self, Caller, Section, Updates},
};

/// Content of an app page.
#[derive(Debug, Clone)]
pub struct AppPage {
    /// The app.
    pub app: App,
    /// Its config versions, newest first.
    pub versions: Page<ConfigVersion>,
    /// Its newest builds.
    pub builds: Vec<Build>,
}

/// App page.
#[must_use]
pub fn app(caller: &Caller, page: &AppPage) -> Markup {
    let AppPage { app, versions, builds } = page;
    let content = html! {
        nav.crumbs aria-label="Breadcrumbs" { a href="/ui/apps" { "Apps" } }
        (frame::title(caller, &Updates::None, &app.name, &html! { a href={ "/ui/installs?app=" (app.id) } { (components::count(app.installs, "install")) } }))
        @if app.version > 1 { (super::diff::chooser(app, app.version - 1, app.version)) }
        @if app.version > 0 && caller.may(&[]) {
            form method="get" action={ "/ui/apps/" (app.id) "/new-install" } { button.primary type="submit" { "Create an install" } }
        }
        @if !builds.is_empty() {
            section.panel aria-label="Builds" {
                header { h2 { "Newest builds" } a.more href={ "/ui/apps/" (app.id) "/builds" } { "View all" span.visually-hidden { " builds" } } }
                (super::builds::table(caller, builds))
            }
        }
        @for version in &versions.items { (version_panel(caller, version)) }
        (next_page(&format!("/ui/apps/{}", app.id), &[], versions.next.as_deref()))
        @if caller.may(&["auditor"]) { (super::as_of::panel(&format!("/ui/apps/{}/as-of", app.id))) }
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
