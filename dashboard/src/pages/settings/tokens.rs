//! Users and services with their tokens, and the page that shows a new token once.
use maud::{Markup, html};
use schemas::control::{Page, tokens::Token};

use crate::{
    components,
    frame::{self, Caller, Section, Updates},
    pages::runs::next_page,
};

const ROLES: [(&str, &str); 4] = [
    ("viewer", "Viewer: reads everything except the audit log"),
    ("approver", "Approver: a viewer who approves and denies plans"),
    ("auditor", "Auditor: a viewer who reads the audit log"),
    ("owner", "Owner: everything"),
];

/// Created token.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// Name of the principal.
    pub name: Option<String>,
    /// Role of the principal.
    pub role: String,
    /// The token. `None` if an earlier submission of the form created it.
    pub secret: Option<String>,
}

/// Page with a new token. No other page shows it.
#[must_use]
pub fn new_token(caller: &Caller, token: &NewToken) -> Markup {
    let content = html! {
        nav.crumbs aria-label="Breadcrumbs" { a href="/ui/settings" { "Settings" } }
        (frame::title(caller, &Updates::None, "New token", &html! {}))
        @match &token.secret {
            Some(secret) => {
                p.note.ok { "Created a token with the role " (token.role) @if let Some(name) = &token.name { " for " (name) } "." }
                section.panel aria-label="Token" {
                    header { h2 { "Token" } }
                    div.body {
                        p { "Copy the token now. The server stores only its digest, so it cannot show the token again." }
                        code.command.secret { (secret) }
                        p.muted { "Its user logs in to this dashboard with it, or to the CLI with " code { "stead login --token-file FILE" } "." }
                    }
                }
            }
            None => {
                p.note.wait {
                    "This form was submitted before, and created one token. The server cannot show that token again. If it is lost, \
                     revoke it and create another one."
                }
            }
        }
        p { a href="/ui/settings" { "Back to the settings" } }
    };
    frame::page(caller, Section::Settings, "New token", &content)
}

/// Form that creates a principal with a token.
pub(super) fn create_panel(caller: &Caller) -> Markup {
    html! {
        section.panel aria-label="New token" {
            header { h2 { "New token" } }
            div.body {
                form.stacked id="create-token" method="post" action="/ui/settings/tokens" {
                    (frame::change_fields(caller, "token"))
                    label { "Name of the user or service" input type="text" name="name" maxlength="80" autocomplete="off" placeholder="Ann Lee"; }
                    label { "Role" (role_select()) }
                    label {
                        "Valid for"
                        select name="days" {
                            option value="1" { "1 day" }
                            option value="30" selected { "30 days" }
                            option value="365" { "1 year" }
                            option value="" { "Until it is revoked" }
                        }
                    }
                    div { button.primary type="submit" { "Create the token" } }
                }
            }
        }
    }
}

fn role_select() -> Markup {
    html! { select name="role" { @for (role, label) in ROLES { option value=(role) { (label) } } } }
}

/// Table of the tokens.
pub(super) fn panel(caller: &Caller, tokens: &Page<Token>) -> Markup {
    html! {
        section.panel aria-label="Users and tokens" {
            header { h2 { "Users and tokens" } }
            div.scroll tabindex="0" role="region" aria-label="Users and tokens" {
                table {
                    thead {
                        tr {
                            th scope="col" { "User or service" }
                            th scope="col" { "Roles" }
                            th scope="col" { "Token" }
                            th scope="col" { "Issued" }
                            th scope="col" { "Expires" }
                            th scope="col" { "Change" }
                        }
                    }
                    tbody { @for token in &tokens.items { (row(caller, token)) } }
                }
            }
            (next_page("/ui/settings", &[], tokens.next.as_deref()))
        }
    }
}

fn row(caller: &Caller, token: &Token) -> Markup {
    let name = token.name.as_deref();
    html! {
        tr id=(token.id) {
            td.name {
                (name.unwrap_or("–"))
                div.muted { (components::id(&token.principal.to_string())) }
            }
            td { @if token.roles.is_empty() { span.muted { "none" } } @else { (token.roles.join(", ")) } }
            td.fit { (components::badge(&token.state)) div.muted { (components::id(&token.id.to_string())) } }
            td.fit { (components::time(caller.now, token.issued_at)) }
            td.fit { @match token.expires_at { Some(at) => (components::time(caller.now, at)), None => { span.muted { "never" } } } }
            td { (changes(caller, token)) }
        }
    }
}

/// Forms of one token. The visible label of the summary needs the name for screen readers.
fn changes(caller: &Caller, token: &Token) -> Markup {
    let name = token.name.as_deref().unwrap_or("this principal");
    let (id, principal) = (token.id, token.principal);
    html! {
        details id={ "change-" (id) } {
            summary { "Change" span.visually-hidden { " " (name) ", token " (id) } }
            div.stacked.menu {
                form.inline method="post" action="/ui/settings/roles" {
                    (frame::change_fields(caller, &format!("g-{id}")))
                    input type="hidden" name="principal" value=(principal);
                    label { "Role" select name="role" { @for (role, _) in ROLES { option value=(role) { (role) } } } }
                    button type="submit" name="change" value="grant" { "Grant" }
                    button type="submit" name="change" value="revoke" { "Revoke" }
                }
                form.inline method="post" action="/ui/settings/names" {
                    (frame::form_token(caller))
                    input type="hidden" name="principal" value=(principal);
                    label { "Name" input type="text" name="name" maxlength="80" autocomplete="off" value=[token.name.as_deref()]; }
                    button type="submit" { "Rename" }
                }
                @if token.state == "active" {
                    form method="post" action="/ui/settings/revoke" {
                        (frame::change_fields(caller, &format!("r-{id}")))
                        input type="hidden" name="token" value=(id);
                        button.danger type="submit" { "Revoke the token" }
                    }
                }
            }
        }
    }
}
