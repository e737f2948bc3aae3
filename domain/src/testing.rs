//! Given/when/then tests of aggregates, golden files, and a generator of histories.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
use std::{fmt::Debug, path::Path};

use serde_json::Value;

use crate::decider::{Decider, Event, Timestamp};

pub const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// Aggregate after a history, with the time of the next command.
pub struct Given<D: Decider> {
    state: D,
    now: Timestamp,
}

/// Decision of an aggregate on a command.
pub struct When<D: Decider>(Result<Vec<D::Event>, D::Error>);

pub fn given<D: Decider>(history: impl IntoIterator<Item = D::Event>) -> Given<D> {
    Given { state: replay(history), now: NOW }
}

/// Returns the state after a history.
pub fn replay<D: Decider>(history: impl IntoIterator<Item = D::Event>) -> D {
    let mut state = D::default();
    history.into_iter().for_each(|event| state.evolve(event));
    state
}

impl<D: Decider> Given<D> {
    /// Sets the time of the command. Default: [`NOW`].
    #[must_use]
    pub fn at(self, now: Timestamp) -> Self {
        Given { now, ..self }
    }

    pub fn when(self, command: D::Command) -> When<D> {
        When(self.state.decide(command, self.now))
    }
}

impl<D: Decider> When<D>
where
    D::Error: PartialEq + Debug,
{
    /// Asserts that the command returned exactly these events.
    #[track_caller]
    pub fn then(self, expected: impl IntoIterator<Item = D::Event>) {
        assert_eq!(self.0, Ok(expected.into_iter().collect()));
    }

    /// Asserts that the aggregate rejected the command with exactly this error.
    #[track_caller]
    pub fn then_rejected(self, expected: D::Error) {
        assert_eq!(self.0, Err(expected));
    }

    /// Asserts that the command returned no events.
    #[track_caller]
    pub fn then_nothing(self) {
        self.then([]);
    }
}

/// Returns every history that at most `depth` of these inputs can produce, each with its final
/// state. `to_command` turns an input into a command with its time, for the current state. An input
/// that produces no event does not extend a history.
pub fn walk<D: Decider, W>(
    inputs: &[W],
    depth: usize,
    to_command: impl Fn(&W, &D) -> (D::Command, Timestamp),
) -> Vec<(Vec<D::Event>, D)> {
    let mut histories = vec![(vec![], D::default())];
    let mut from = 0;
    for _ in 0..depth {
        let to = histories.len();
        for at in from..to {
            for input in inputs {
                let (mut history, mut state) = histories[at].clone();
                let (command, now) = to_command(input, &state);
                let events = state.decide(command, now).unwrap_or_default();
                if !events.is_empty() {
                    events.iter().cloned().for_each(|event| state.evolve(event));
                    history.extend(events);
                    histories.push((history, state));
                }
            }
        }
        from = to;
    }
    histories
}

/// Formats a table with the result of every input in every state. `to_text` returns a short text
/// for an error.
pub fn table<D: Decider, W>(
    states: &[(&str, D)],
    inputs: &[(&str, W)],
    to_command: impl Fn(&W, &D) -> (D::Command, Timestamp),
    to_text: impl Fn(D::Error) -> String,
) -> String {
    let names = [""].into_iter().chain(inputs.iter().map(|input| input.0)).map(String::from);
    let mut columns = vec![names.collect::<Vec<_>>()];
    for (name, state) in states {
        let decisions = inputs.iter().map(|(_, input)| {
            let (command, now) = to_command(input, state);
            state.decide(command, now)
        });
        let cells = decisions.map(|decision| match decision {
            Ok(events) if events.is_empty() => "·".into(),
            Ok(events) => events.iter().map(verb::<D>).collect::<Vec<_>>().join(" + "),
            Err(error) => format!("✗ {}", to_text(error)),
        });
        columns.push([name.to_string()].into_iter().chain(cells).collect());
    }
    let width = |column: &[String]| column.iter().map(|c| c.chars().count()).max().unwrap_or(0);
    let line = |row: usize| {
        let cells = columns.iter().map(|c| format!("{:<1$}", c[row], width(c) + 2));
        cells.collect::<String>().trim_end().to_string() + "\n"
    };
    (0..=inputs.len()).map(line).collect()
}

/// Compares the transition table of a small aggregate with its golden. The table has the result of
/// every command after each history: the events, or the message of the rejection.
#[track_caller]
pub fn transitions<D: Decider>(
    histories: Vec<(&str, Vec<D::Event>)>,
    commands: Vec<(&str, D::Command)>,
) where
    D::Command: Clone,
{
    let states: Vec<(&str, D)> =
        histories.into_iter().map(|(name, history)| (name, replay(history))).collect();
    let to_command = |command: &D::Command, _: &D| (command.clone(), NOW);
    let text = table(&states, &commands, to_command, |error| error.to_string());
    golden(&format!("transitions/{}.txt", D::NAME), &format!("· no change   ✗ rejected\n\n{text}"));
}

fn verb<D: Decider>(event: &D::Event) -> &'static str {
    event.name().split_once('.').unwrap().1
}

/// Compares text with a file under `schemas/`. If `UPDATE_GOLDEN` is set, writes the file first.
#[track_caller]
pub fn golden(path: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas").join(path);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == text,
        "{path:?} is out of date: set UPDATE_GOLDEN=1, then read the diff\n{text}"
    );
}

/// Compares an example payload of every event of an aggregate with its golden.
///
/// The examples start with `first`, and `after` returns the next one. `after` matches on the event,
/// so the compiler reports an event without an example. Each example must deserialize to the same
/// value and follow the payload conventions.
#[track_caller]
pub fn examples<D: Decider>(first: D::Event, after: impl Fn(&D::Event) -> Option<D::Event>) {
    let mut names = vec![];
    for event in std::iter::successors(Some(first), after) {
        let (name, version) = (event.name(), event.version());
        let text = serde_json::to_string_pretty(&event).unwrap() + "\n";
        golden(&format!("events/{name}/{version}.example.json"), &text);
        assert_eq!(serde_json::from_str::<D::Event>(&text).unwrap(), event, "{text}");
        assert_payload_conventions(verb::<D>(&event), &serde_json::to_string(&event).unwrap());
        assert!(name.starts_with(&format!("{}.", D::NAME)), "{name}");
        names.push(name.to_string());
    }
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/events");
    let stored = std::fs::read_dir(stored).unwrap();
    for name in stored.map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
        let belongs = name.starts_with(&format!("{}.", D::NAME));
        assert!(
            !belongs || names.contains(&name),
            "event {name} has a stored schema and no example: add the example"
        );
    }
}

/// Numbers without a unit. Apart from [`CODES`], the name of every other number ends with its unit,
/// for example `_ms`.
const UNITLESS: [&str; 12] = [
    "attempt",
    "attempts",
    "version",
    "config_version",
    "seq",
    "position",
    "sessions",
    "calls",
    "generation",
    "add",
    "change",
    "destroy",
];
const CODES: [&str; 2] = ["exit_code", "signal"];

#[track_caller]
fn assert_payload_conventions(verb: &str, text: &str) {
    assert!(text.starts_with(&format!(r#"{{"type":"{verb}""#)), "{text}");
    assert!(verb.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{verb}");
    for (key, value) in serde_json::from_str::<Value>(text).unwrap().as_object().unwrap() {
        assert!(!value.is_null(), "{key} is null: omit the field");
        let known = UNITLESS.contains(&key.as_str()) || CODES.contains(&key.as_str());
        let unit = ["_bytes", "_ms"].iter().any(|unit| key.ends_with(unit));
        assert!(!value.is_number() || known || unit, "{key} has no unit: add a suffix such as _ms");
    }
}
