//! Ids, times, values, commands and empty states.
use std::fmt::Display;

use chrono::{DateTime, SecondsFormat, Utc};
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

/// Number of characters at the end of an id that a page shows.
const ID_CHARACTERS: usize = 6;

/// An id with its prefix and its last characters. The title has the whole id.
pub(crate) fn id(id: &str) -> Markup {
    let short = match (id.split_once('_'), id.len().checked_sub(ID_CHARACTERS)) {
        (Some((prefix, rest)), Some(from))
            if rest.len() > ID_CHARACTERS && id.is_char_boundary(from) =>
        {
            format!("{prefix}_…{}", &id[from..])
        }
        (Some(_) | None, Some(_) | None) => id.to_owned(),
    };
    html! { code title=(id) { (short) } }
}

/// A link to a run.
pub(crate) fn run_link(run: &impl Display) -> Markup {
    html! { a href={ "/ui/runs/" (run) } { (id(&run.to_string())) } }
}

/// Name of a kind or a state. Underscores become spaces.
pub(crate) fn kind(name: &str) -> String {
    name.replace('_', " ")
}

/// Name of an actor. A policy of the server has words instead of its name in the log.
pub(crate) fn actor(name: &str) -> String {
    match name.strip_prefix("policy:") {
        Some(policy) => format!("Stead: {}", kind(policy)),
        None => name.to_owned(),
    }
}

/// A number with its noun.
pub(crate) fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// A value for the query of a URL.
pub(crate) fn encoded(value: &str) -> String {
    utf8_percent_encode(value, NON_ALPHANUMERIC).to_string()
}

/// The exact time in UTC.
pub(crate) fn exact(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// A time relative to `now`, with the exact time as its title.
pub(crate) fn time(now: DateTime<Utc>, at: DateTime<Utc>) -> Markup {
    let exact = at.to_rfc3339_opts(SecondsFormat::Secs, true);
    html! { time datetime=(exact) title=(exact) { (relative(now, at)) } }
}

fn relative(now: DateTime<Utc>, at: DateTime<Utc>) -> String {
    let seconds = now.signed_duration_since(at).num_seconds();
    let (size, suffix) = (seconds.unsigned_abs(), if seconds < 0 { "from now" } else { "ago" });
    match size {
        0..=4 => "now".to_owned(),
        5..=59 => format!("{size} s {suffix}"),
        60..=3_599 => format!("{} min {suffix}", size / 60),
        3_600..=86_399 => format!("{} h {suffix}", size / 3_600),
        86_400.. => format!("{} d {suffix}", size / 86_400),
    }
}

/// A value of an input or an output: text as it is, everything else as JSON.
pub(crate) fn value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

/// A command line. Each argument is quoted for a POSIX shell. Control characters become `?`, because a terminal
/// could execute them on paste.
pub(crate) fn command(arguments: &[&str]) -> Markup {
    let line: Vec<String> = arguments.iter().map(|argument| quoted(argument)).collect();
    command_line(&line.join(" "))
}

/// A complete command line of the server. A selection leaves out the prompt.
pub(crate) fn command_line(line: &str) -> Markup {
    html! { code.command { span.prompt aria-hidden="true" { "$ " } (line) } }
}

fn quoted(argument: &str) -> String {
    let clean: String = argument.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,+".contains(c);
    if !clean.is_empty() && clean.chars().all(plain) {
        return clean;
    }
    format!("'{}'", clean.replace('\'', r"'\''"))
}

/// Content of a panel without rows: what is missing, and the command that adds it.
pub(crate) fn empty(text: &str, arguments: &[&str]) -> Markup {
    html! {
        div.empty {
            p { (text) }
            @if !arguments.is_empty() { (command(arguments)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copied_command_is_one_command() {
        assert_eq!(quoted("acme"), "acme");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("$(rm -rf /)'"), r"'$(rm -rf /)'\'''");
        assert_eq!(quoted("x\n\u{1b}[2J"), "'x??[2J'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn time_is_relative_to_now() {
        let now = DateTime::from_timestamp(1_000_000, 0).unwrap();
        let at = |seconds: i64| DateTime::from_timestamp(1_000_000 - seconds, 0).unwrap();
        for (seconds, text) in [
            (0, "now"),
            (59, "59 s ago"),
            (61, "1 min ago"),
            (7_200, "2 h ago"),
            (200_000, "2 d ago"),
            (-90, "1 min from now"),
        ] {
            assert_eq!(relative(now, at(seconds)), text);
        }
    }

    #[test]
    fn numbers_have_their_noun() {
        assert_eq!((count(1, "check"), count(2, "check")), ("1 check".into(), "2 checks".into()));
        assert_eq!(encoded("policy:a&b=#c"), "policy%3Aa%26b%3D%23c");
    }

    #[test]
    fn id_shows_its_kind_and_its_end() {
        let text = id("run_01M86Q0S8E91227SZVKK7NJN3B").into_string();
        assert_eq!(text, r#"<code title="run_01M86Q0S8E91227SZVKK7NJN3B">run_…7NJN3B</code>"#);
        assert_eq!(id("é").into_string(), r#"<code title="é">é</code>"#);
    }
}
