//! Frame of every page: head, navigation and the main element.
use chrono::{DateTime, Utc};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use schemas::sanitize::sanitize;

use crate::{assets, components};

/// Caller of a page and the state of the server, which every page shows.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Display name of the principal, or its id.
    pub name: String,
    /// Roles of the principal, as in `GET /v1/whoami`.
    pub roles: Vec<String>,
    /// Token of the session that each form sends back, against forged requests.
    pub form_token: String,
    /// Key of the next change, so that a repeated submission changes nothing.
    pub idempotency_key: String,
    /// Last log position that the page includes.
    pub position: u64,
    /// Version of the server program.
    pub version: String,
    /// Current time of the server.
    pub now: DateTime<Utc>,
}

impl Caller {
    /// Returns true if the caller has one of these roles, or is an owner. The server checks the role
    /// of each change again; pages only hide what it would reject.
    #[must_use]
    pub fn may(&self, roles: &[&str]) -> bool {
        self.roles.iter().any(|role| role == "owner" || roles.contains(&role.as_str()))
    }
}

/// Updates of an open page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Updates {
    /// None. The page shows the past, or a list that the user reads.
    None,
    /// After a change of these keys: aggregate types and streams, as in `/ui/live`.
    Keys(Vec<String>),
    /// After each output of a job, and after a change of these keys. `name` is the log in `/ui/live`.
    Log { name: String, keys: Vec<String> },
}

impl Updates {
    /// Updates of a list or an overview of entities of these types.
    pub(crate) fn of_types(types: &[&str]) -> Updates {
        Updates::Keys(types.iter().map(ToString::to_string).collect())
    }
}

/// Entry of the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    Home,
    Installs,
    Runs,
    Apps,
    Runners,
    Audit,
    Settings,
}

/// Entry of the navigation, with its page.
pub(crate) struct SectionLink {
    section: Section,
    pub path: &'static str,
    pub label: &'static str,
    /// Key that opens the page, after `g`.
    key: &'static str,
}

impl SectionLink {
    pub(crate) fn is_visible(&self, caller: &Caller) -> bool {
        self.section != Section::Audit || caller.may(&["auditor"])
    }
}

const fn link(
    section: Section,
    path: &'static str,
    label: &'static str,
    key: &'static str,
) -> SectionLink {
    SectionLink { section, path, label, key }
}

pub(crate) const SECTIONS: [SectionLink; 7] = [
    link(Section::Home, "/ui/", "Home", "h"),
    link(Section::Installs, "/ui/installs", "Installs", "i"),
    link(Section::Runs, "/ui/runs", "Runs", "r"),
    link(Section::Apps, "/ui/apps", "Apps", "a"),
    link(Section::Runners, "/ui/runners", "Runners", "n"),
    link(Section::Audit, "/ui/audit", "Audit", "u"),
    link(Section::Settings, "/ui/settings", "Settings", "s"),
];

/// Page with a navigation. `content` is the content of the main element.
pub(crate) fn page(
    caller: &Caller,
    section: impl Into<Option<Section>>,
    title: &str,
    content: &Markup,
) -> Markup {
    let section: Option<Section> = section.into();
    sanitized(&html! {
        (DOCTYPE)
        html lang="en" {
            head {
                (head(title))
                script src=(assets::path("idiomorph.js")) defer {}
                script src=(assets::path("base.js")) type="module" {}
                script src=(assets::path("log.js")) type="module" {}
                script src=(assets::path("palette.js")) type="module" {}
                script src=(assets::path("graph.js")) type="module" {}
                script src=(assets::path("live.js")) type="module" {}
            }
            body {
                a.skip href="#main" { "Skip to content" }
                nav.nav aria-label="Main" {
                    a.brand href="/ui/" { "Stead" }
                    ul {
                        @for link in SECTIONS.iter().filter(|link| link.is_visible(caller)) {
                            li {
                                a href=(link.path) data-key=(link.key) aria-current=[(Some(link.section) == section).then_some("page")] {
                                    (link.label)
                                }
                            }
                        }
                    }
                    a.go href="/ui/find" { "Go to…" kbd { "Ctrl K" } }
                    div.account {
                        span { strong { (caller.name) } " " span.muted { (caller.roles.join(", ")) } }
                        form method="post" action="/ui/logout" {
                            (form_token(caller))
                            button type="submit" { "Log out" }
                        }
                        span.muted { "Stead " (caller.version) }
                    }
                }
                main id="main" tabindex="-1" data-position=(caller.position) { (content) }
            }
        }
    })
}

/// Page without a navigation, for callers without a session.
pub(crate) fn bare(title: &str, script: Option<&str>, content: &Markup) -> Markup {
    sanitized(&html! {
        (DOCTYPE)
        html lang="en" {
            head {
                (head(title))
                @if let Some(script) = script { script src=(assets::path(script)) type="module" {} }
            }
            body.login { main { (content) } }
        }
    })
}

/// Replaces control characters, and characters that hide text or change its direction. Text of other
/// parties could otherwise show a plan or a command that differs from the real one.
fn sanitized(page: &Markup) -> Markup {
    let lines: Vec<String> = page.0.split('\n').map(sanitize).collect();
    PreEscaped(lines.join("\n"))
}

fn head(title: &str) -> Markup {
    html! {
        meta charset="utf-8";
        meta name="viewport" content="width=device-width, initial-scale=1";
        title { (title) " · Stead" }
        link rel="icon" href=(assets::path("icon.svg"));
        link rel="stylesheet" href=(assets::path("stead.css"));
    }
}

/// Field that proves that a form comes from a page of this session.
pub(crate) fn form_token(caller: &Caller) -> Markup {
    html! { input type="hidden" name="form_token" value=(caller.form_token); }
}

/// Hidden fields of a form that changes something.
/// `form` makes the key differ between the forms of a page.
pub(crate) fn change_fields(caller: &Caller, form: &str) -> Markup {
    html! {
        (form_token(caller))
        input type="hidden" name="idempotency_key" value={ (caller.idempotency_key) "-" (form) };
    }
}

/// First line of a page: its heading, further content, and the time of the page.
pub(crate) fn title(caller: &Caller, updates: &Updates, heading: &str, more: &Markup) -> Markup {
    let (log, keys) = match updates {
        Updates::None => (None, None),
        Updates::Keys(keys) => (Some(""), Some(keys)),
        Updates::Log { name, keys } => (Some(name.as_str()), Some(keys)),
    };
    // A change of the roles of the caller changes what every page offers.
    let keys = keys.map(|keys| format!("access,{}", keys.join(",")));
    html! {
        div.title {
            h1 { (heading) }
            (more)
            span.status data-live=[log] data-keys=[keys] role="status" {
                "as of " (components::exact(caller.now))
            }
        }
    }
}
