//! Sensitive values: their ids in events and texts, and the functions that the runner applies to
//! them. The server knows no sensitive value, so a template can only say what to do with it.
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{go_text, ids::ValueId};

/// Prefix of the text that stands for a sensitive value in events, inputs and manifests.
const PREFIX: &str = "encrypted:";

/// Maximum size of one sensitive value in bytes.
pub const MAX_VALUE_BYTES: usize = 64 * 1024;
/// Maximum size of one ciphertext in bytes: the value, its header and its tag.
pub const MAX_CIPHERTEXT_BYTES: usize = MAX_VALUE_BYTES + 1024;

/// Name of the consumers that stands for every component, or for every job kind of [`KINDS`].
pub const ANY: &str = "*";

/// Kinds of jobs that work for one install, by their names.
const KINDS: [&str; 4] = ["plan", "apply", "sync", "action"];

/// Returns the text that stands for a sensitive value: `encrypted:` and its id.
pub fn placeholder(id: ValueId) -> String {
    format!("{PREFIX}{id}")
}

/// Returns the id of the value that this text stands for. `None` for any other text.
pub fn of_placeholder(text: &str) -> Option<ValueId> {
    text.strip_prefix(PREFIX)?.parse().ok()
}

/// Job that may use a sensitive value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct Consumer {
    /// Name of the component, `sandbox`, `action:` and the name of an action, or `*` for all.
    pub component: String,
    /// Kind of the job, for example `apply`, or `*` for all.
    pub job_kind: String,
}

impl Consumer {
    /// Returns whether these consumers include a job.
    pub fn any_permits(consumers: &[Consumer], component: &str, job_kind: &str) -> bool {
        let is_component = |one: &Consumer| one.component == ANY || one.component == component;
        let is_kind = |one: &Consumer| match one.job_kind.as_str() {
            ANY => KINDS.contains(&job_kind),
            kind => kind == job_kind,
        };
        consumers.iter().any(|one| is_component(one) && is_kind(one))
    }
}

/// Pure function of one value. The runner applies it to the value before it inserts the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Through {
    /// Base64 (`b64enc`).
    Base64,
    /// Text in double quotes, with escapes as in Go (`quote`).
    Quote,
    /// JSON string (`toJson`).
    ToJson,
    /// Text without white space at both ends (`trim`).
    Trim,
    /// Text in the query of a URL (`urlquery`).
    UrlQuery,
    /// Each line behind this number of spaces (`indent`).
    Indent(u32),
    /// Text between two other texts (`printf`).
    Surround {
        /// Text before the value.
        before: String,
        /// Text after the value.
        after: String,
    },
    /// The value, or this text if the value is empty (`default`).
    Default(String),
}

/// Applies functions to a value, in this order.
pub fn apply(through: &[Through], value: &str) -> String {
    through.iter().fold(value.to_owned(), |value, function| match function {
        Through::Base64 => go_text::base64(&value),
        Through::Quote => go_text::text(&value, false),
        Through::ToJson => {
            let mut out = String::new();
            go_text::json_string(&value, &mut out);
            out
        }
        Through::Trim => value.trim().to_owned(),
        Through::UrlQuery => go_text::url_query(&value),
        Through::Indent(spaces) => go_text::indent(&value, *spaces as usize),
        Through::Surround { before, after } => format!("{before}{value}{after}"),
        Through::Default(fallback) if value.is_empty() => fallback.clone(),
        Through::Default(_) => value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_apply_in_order() {
        let surround = Through::Surround { before: "u:".into(), after: "@h".into() };
        let cases: [(&[Through], &str, &str); 9] = [
            (&[], "x", "x"),
            (&[Through::Base64], "a", "YQ=="),
            (&[surround, Through::Base64], "pw", "dTpwd0Bo"),
            (&[Through::Quote], "a\"\n", r#""a\"\n""#),
            (&[Through::ToJson], "<a>", r#""\u003ca\u003e""#),
            (&[Through::Trim, Through::Indent(2)], " a\nb ", "  a\n  b"),
            (&[Through::UrlQuery], "p@ss w/", "p%40ss+w%2F"),
            (&[Through::Default("d".into())], "", "d"),
            (&[Through::Default("d".into())], "v", "v"),
        ];
        for (through, value, expected) in cases {
            assert_eq!(apply(through, value), expected, "{through:?}");
        }
        assert_eq!(go_text::base64("abcd"), "YWJjZA==");
        assert_eq!(go_text::base64("abc\u{e9}"), "YWJjw6k=");
        assert_eq!(go_text::base64(""), "");
    }

    #[test]
    fn only_exact_placeholders_stand_for_a_value() {
        let id = ValueId(ulid::Ulid(7));
        assert_eq!(of_placeholder(&placeholder(id)), Some(id));
        for other in ["", "encrypted:", "encrypted:x", "val_x", &format!(" {}", placeholder(id))] {
            assert_eq!(of_placeholder(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_consumer_names_component_and_kind() {
        let one = |component: &str, kind: &str| Consumer {
            component: component.into(),
            job_kind: kind.into(),
        };
        let permits = |list: &[Consumer]| Consumer::any_permits(list, "db", "apply");
        assert!(permits(&[one("x", "apply"), one("db", "apply")]));
        assert!(permits(&[one("*", "*")]) && permits(&[one("db", "*")]));
        assert!(!Consumer::any_permits(&[one("*", "*")], "db", "build"));
        assert!(!permits(&[]) && !permits(&[one("db", "plan")]) && !permits(&[one("x", "*")]));
    }
}
