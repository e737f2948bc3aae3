//! Login with a token, or with the one-time code of `stead up`.
use maud::{Markup, html};

use crate::{components, frame};

/// Login page. `next` is the page to open after the login, and `error` explains the rejection of
/// the previous attempt.
#[must_use]
pub fn login(next: Option<&str>, error: Option<&str>) -> Markup {
    let content = html! {
        form.stacked method="post" action="/ui/login" {
            h1 { "Log in to Stead" }
            @if let Some(error) = error { p.note.fail role="alert" { (error) } }
            @if error.is_none() && next.is_some() {
                p.note { "You are not logged in, or your session has ended. If you sent a form, it had no effect: send it again after the login." }
            }
            @if let Some(next) = next { input type="hidden" name="next" value=(next); }
            label {
                "Token or one-time code"
                input type="password" name="secret" required autofocus autocomplete="current-password" maxlength="200";
            }
            button.primary type="submit" { "Log in" }
        }
        div.stacked {
            p.muted { "An owner creates a token with this command:" }
            (components::command(&["stead", "tokens", "create", "--name", "NAME", "--role", "approver"]))
        }
    };
    frame::bare("Log in", Some("login.js"), &content)
}
