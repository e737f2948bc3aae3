//! Page of a rejected request: the problem details of the API as text.
use maud::{Markup, html};
use schemas::problem::FieldProblem;

use crate::frame;

/// Problem page. `back` is the page from which the request came.
#[must_use]
pub fn problem(
    title: &str,
    code: &str,
    detail: &str,
    fields: &[FieldProblem],
    back: &str,
) -> Markup {
    let content = html! {
        h1 { (title) }
        div.note.fail role="alert" {
            p { (detail) }
            @for field in fields {
                p {
                    (field.message)
                    @if let Some(remedy) = &field.remedy { "; " (remedy) }
                }
            }
            p.muted { "Code: " code { (code) } }
        }
        p { a href=(back) { "Back" } " · " a href="/ui/" { "Home" } }
    };
    frame::bare(title, None, &content)
}
