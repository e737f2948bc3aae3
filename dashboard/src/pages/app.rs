//! One app: its config versions, newest first.
use std::collections::BTreeMap;

use maud::{Markup, html};
use schemas::control::{
    Page,
    apps::{App, ConfigVersion},
    builds::Build,
};
use serde_json::Value;

use super::{
    dependencies::{self, Shown},
    runs::next_page,
};
use crate::{
    components::{self, Tone},
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
    /// Number of installs by the version that they follow. None if not all installs are counted.
    pub followers: Option<BTreeMap<u32, u64>>,
    /// Parsed configuration of the newest version. Null if the app has none.
    pub config: Value,
}

/// App page.
#[must_use]
pub fn app(caller: &Caller, page: &AppPage) -> Markup {
    let AppPage { app, versions, builds, config, .. } = page;
    let content = html! {
        nav.crumbs aria-label="Breadcrumbs" { a href="/ui/apps" { "Apps" } }
        (frame::title(caller, &Updates::None, &app.name, &html! { a href={ "/ui/installs?app=" (app.id) } { (components::count(app.installs, "install")) } }))
        @if app.version > 0 {
            div.toolbar {
                @if app.version > 1 { (super::diff::chooser(app, app.version - 1, app.version)) }
                @if caller.may(&[]) {
                    form method="get" action={ "/ui/apps/" (app.id) "/new-install" } { button.primary type="submit" { "Create an install" } }
                }
            }
        }
        @if let Some(graph) = graph(&versions.items, config) {
            section.panel aria-label="Graph" {
                header { h2 { "Graph" } span.muted { "Dependencies of the components of v" (app.version) } }
                (graph)
            }
        }
        @if !builds.is_empty() {
            section.panel aria-label="Builds" {
                header { h2 { "Newest builds" } a.more href={ "/ui/apps/" (app.id) "/builds" } { "View all" span.visually-hidden { " builds" } } }
                (super::builds::table(caller, builds))
            }
        }
        @for version in &versions.items { (version_panel(caller, page, version)) }
        (next_page(&format!("/ui/apps/{}", app.id), &[], versions.next.as_deref()))
        @if caller.may(&["auditor"]) { (super::as_of::panel(&format!("/ui/apps/{}/as-of", app.id))) }
    };
    frame::page(caller, Section::Apps, &app.name, &content)
}

/// Components of the newest version.
fn graph(versions: &[ConfigVersion], config: &Value) -> Option<Markup> {
    let newest = versions.first()?;
    let of = |name: &str| newest.components.iter().find(|component| component.name == name);
    let label = "Graph of the components; the versions below list the components";
    dependencies::graph(label, config, of("sandbox").is_some(), |name| Shown {
        subtitle: of(name).map(|component| component.kind.clone()).unwrap_or_default(),
        tone: Tone::Idle,
        href: format!("#version-{}", newest.version),
    })
}

fn version_panel(caller: &Caller, page: &AppPage, version: &ConfigVersion) -> Markup {
    let followers = match &page.followers {
        Some(counts) => {
            components::count(counts.get(&version.version).copied().unwrap_or(0), "install")
        }
        None => "Installs".to_owned(),
    };
    html! {
        section.panel aria-label={ "Version " (version.version) } {
            header {
                h2 { "Version " (version.version) }
                (components::badge(&version.state))
                a href={ "/ui/installs?app=" (page.app.id) "&version=" (version.version) } {
                    (followers) span.visually-hidden { " that follow version " (version.version) }
                }
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
