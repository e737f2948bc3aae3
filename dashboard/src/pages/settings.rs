//! Settings: users and their tokens, signing keys, projections, erasure, and the server itself.
mod tokens;

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use schemas::control::{
    Page,
    projections::Projection,
    subjects::Subject,
    tokens::{Token, Whoami},
};

pub use self::tokens::{NewToken, new_token};
use crate::{
    components,
    frame::{self, Caller, Section, Updates},
};

/// Content of the settings page. A part that the caller may not read is absent.
#[derive(Debug, Clone)]
pub struct SettingsPage {
    /// The caller, and the log of the server.
    pub whoami: Whoami,
    /// URL of the Control API.
    pub url: String,
    /// Public keys of the server.
    pub keys: Vec<SigningKey>,
    /// Tokens, for owners.
    pub tokens: Option<Page<Token>>,
    /// Projections, for auditors and owners.
    pub projections: Option<Vec<Projection>>,
    /// Data subject whose erasure the caller looks at.
    pub subject: Option<Subject>,
}

/// Public part of a key of the server.
#[derive(Debug, Clone)]
pub struct SigningKey {
    /// Documents that the key signs: `tokens`, `manifests` or `checkpoints`.
    pub usage: String,
    /// SHA-256 of the public key.
    pub fingerprint: String,
    /// Checkpoint key in the format of `stead audit check --key`.
    pub verifier: Option<String>,
    /// Time from which the key is valid.
    pub since: DateTime<Utc>,
    /// Time from which a replaced key is invalid.
    pub until: Option<DateTime<Utc>>,
}

/// Settings page.
#[must_use]
pub fn settings(caller: &Caller, page: &SettingsPage) -> Markup {
    let content = html! {
        (frame::title(caller, &Updates::None, "Settings", &html! {}))
        @if caller.may(&["auditor"]) { p { a href="/ui/settings/webhooks" { "Webhooks" } span.muted { " – messages about approvals, failures and runners to your own endpoints" } } }
        @if let Some(tokens) = &page.tokens { (tokens::panel(caller, tokens)) }
        div.columns {
            div.stack {
                @if let Some(projections) = &page.projections { (projections_panel(projections)) }
                (keys_panel(caller, &page.keys))
            }
            div.stack {
                @if caller.may(&[]) { (tokens::create_panel(caller)) }
                (server_panel(caller, page))
                @if caller.may(&["auditor"]) { (erasure_panel(caller, page.subject.as_ref())) }
            }
        }
    };
    frame::page(caller, Section::Settings, "Settings", &content)
}

fn server_panel(caller: &Caller, page: &SettingsPage) -> Markup {
    html! {
        section.panel aria-label="Server" {
            header { h2 { "Server" } }
            div.body {
                dl.facts {
                    div { dt { "Version" } dd { (page.whoami.version) } }
                    div { dt { "Log position" } dd { (page.whoami.position) } }
                    div { dt { "Time" } dd { (components::exact(caller.now)) } }
                }
                dl.facts.wide {
                    div { dt { "URL" } dd { code { (page.url) } } }
                    div { dt { "Log" } dd { code { (page.whoami.log) } } }
                    div { dt { "Your roles" } dd { (page.whoami.roles.join(", ")) } }
                }
                p.muted { "The server reports its readiness at " code { "/readyz" } ". This command verifies the log on your computer:" }
                (components::command(&["stead", "audit", "verify"]))
            }
        }
    }
}

fn keys_panel(caller: &Caller, keys: &[SigningKey]) -> Markup {
    html! {
        section.panel aria-label="Signing keys" {
            header { h2 { "Signing keys" } }
            div.scroll tabindex="0" role="region" aria-label="Signing keys" {
                table {
                    thead { tr { th scope="col" { "Signs" } th scope="col" { "State" } th scope="col" { "Since" } th scope="col" { "Fingerprint" } } }
                    tbody {
                        @for key in keys {
                            tr {
                                td.name { (key.usage) }
                                td.fit { @match key.until { None => (components::badge("active")), Some(until) => { "replaced, trusted until " (components::time(caller.now, until)) } } }
                                td.fit { (components::time(caller.now, key.since)) }
                                td.long {
                                    code { (key.fingerprint) }
                                    @if let Some(verifier) = &key.verifier { div { span.muted { "Verifier key " } code { (verifier) } } }
                                }
                            }
                        }
                    }
                }
            }
            div.body {
                p.muted { "The keys are files of the server. These commands replace one, on the machine of the server:" }
                @for usage in ["tokens", "manifests", "checkpoints"] {
                    (components::command(&["stead", "keys", "rotate", "--use", usage]))
                }
            }
        }
    }
}

fn projections_panel(projections: &[Projection]) -> Markup {
    html! {
        section.panel aria-label="Projections" {
            header { h2 { "Projections" } }
            div.scroll tabindex="0" role="region" aria-label="Projections" {
                table {
                    thead {
                        tr {
                            th scope="col" { "Projection" }
                            th scope="col" { "Class" }
                            th.number scope="col" { "Version" }
                            th.number scope="col" { "Position" }
                            th.number scope="col" { "Lag" }
                            th scope="col" { "Notes" }
                        }
                    }
                    tbody {
                        @for projection in projections {
                            tr {
                                td.name { (projection.name) }
                                td { (projection.class) }
                                td.number { (projection.version) }
                                td.number { (projection.position) }
                                td.number { (projection.lag) }
                                td { (notes(projection)) }
                            }
                        }
                    }
                }
            }
            div.body {
                p.muted { "A replay of a long log takes minutes, so these commands show its progress. They compare every row with the log, rebuild the rows, and restore the rows from before a rebuild:" }
                (components::command(&["stead", "projections", "verify", "--all"]))
                (components::command(&["stead", "projections", "rebuild", "NAME"]))
                (components::command(&["stead", "projections", "rollback", "NAME"]))
            }
        }
    }
}

fn notes(projection: &Projection) -> Markup {
    html! {
        @if let Some(letters) = projection.dead_letters.filter(|letters| *letters > 0) {
            span.badge.fail { (components::count(letters, "unprocessed event")) }
        }
        @for position in &projection.as_of_positions { div.muted { "table as of position " (position) } }
    }
}

/// Erasure of personal data: first the subject, then its state, then the typed id.
fn erasure_panel(caller: &Caller, subject: Option<&Subject>) -> Markup {
    let id = subject.map(|subject| subject.subject.as_str());
    html! {
        section.panel aria-label="Erasure" {
            header { h2 { "Erasure" } }
            div.body {
                p.muted { "Deletes the key of a deprovisioned install, or of a principal without a valid token. Its personal data is then permanently unreadable." }
                form.inline method="get" action="/ui/settings" {
                    label { "Id of an install or a principal" input type="text" name="subject" required value=[id] placeholder="ins_… or prn_…"; }
                    button type="submit" { "Show" }
                }
                @if let Some(subject) = subject {
                    (erasure_state(caller, subject))
                    @if caller.may(&[]) && subject.state == "readable" { (shred(caller, subject)) }
                }
            }
        }
    }
}

fn erasure_state(caller: &Caller, subject: &Subject) -> Markup {
    html! {
        dl.facts {
            div { dt { "Subject" } dd { (components::id(&subject.subject)) } }
            div { dt { "Personal data" } dd { (components::badge(&subject.state)) } }
            @if let Some(by) = &subject.by { div { dt { "Erased by" } dd { (subject.by_name.as_deref().unwrap_or(by)) } } }
            @if let Some(at) = subject.shredded_at { div { dt { "Key deleted" } dd { (components::time(caller.now, at)) } } }
            @if let Some(at) = subject.erased_at { div { dt { "Copies erased" } dd { (components::time(caller.now, at)) } } }
        }
        @if let Some(reason) = &subject.reason { p { span.muted { "Reason: " } (reason) } }
    }
}

fn shred(caller: &Caller, subject: &Subject) -> Markup {
    html! {
        form.stacked id="shred" method="post" action="/ui/settings/shred" {
            (frame::change_fields(caller, "shred"))
            input type="hidden" name="subject" value=(subject.subject);
            label { "Type the id of the subject: " (subject.subject) input type="text" name="confirm" required autocomplete="off"; }
            label { "Reason, without personal data" input type="text" name="reason" required maxlength="2000"; }
            div { button.danger type="submit" { "Erase the personal data" } }
        }
    }
}
