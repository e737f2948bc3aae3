//! given / when / then, in the words of the domain; and every history there can be.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
use std::{fmt::Debug, path::Path};

use serde_json::Value;

use crate::decider::{Decider, Event, Timestamp};

pub const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// A history, and the moment at which something is asked.
pub struct Given<D: Decider> {
    state: D,
    now: Timestamp,
}

/// What was answered.
pub struct When<D: Decider>(Result<Vec<D::Event>, D::Error>);

/// An aggregate with this history.
pub fn given<D: Decider>(history: impl IntoIterator<Item = D::Event>) -> Given<D> {
    Given { state: replay(history), now: NOW }
}

/// The state that a history leads to.
pub fn replay<D: Decider>(history: impl IntoIterator<Item = D::Event>) -> D {
    let mut state = D::default();
    history.into_iter().for_each(|fact| state.evolve(fact));
    state
}

impl<D: Decider> Given<D> {
    /// Sets the moment; the beginning of 1970 unless told.
    #[must_use]
    pub fn at(self, now: Timestamp) -> Self {
        Given { now, ..self }
    }

    /// Asks.
    pub fn when(self, command: D::Command) -> When<D> {
        When(self.state.decide(command, self.now))
    }
}

impl<D: Decider> When<D>
where
    D::Error: PartialEq + Debug,
{
    /// These facts became true.
    #[track_caller]
    pub fn then(self, expected: impl IntoIterator<Item = D::Event>) {
        assert_eq!(self.0, Ok(expected.into_iter().collect()));
    }

    /// The answer was no, and why.
    #[track_caller]
    pub fn refused(self, expected: D::Error) {
        assert_eq!(self.0, Err(expected));
    }

    /// It was already so.
    #[track_caller]
    pub fn nothing(self) {
        self.then([]);
    }
}

/// Every history that at most `depth` of these words can make, and the state it left behind. A word
/// becomes a command, and the moment at which it is asked, in the state that hears it. One that makes
/// no fact leads nowhere new, so it is asked but not followed.
pub fn walk<D: Decider, W>(
    words: &[W],
    depth: usize,
    ask: impl Fn(&W, &D) -> (D::Command, Timestamp),
) -> Vec<(Vec<D::Event>, D)> {
    let mut walked = vec![(vec![], D::default())];
    let mut from = 0;
    for _ in 0..depth {
        let to = walked.len();
        for at in from..to {
            for word in words {
                let (mut history, mut state) = walked[at].clone();
                let (command, now) = ask(word, &state);
                let facts = state.decide(command, now).unwrap_or_default();
                if !facts.is_empty() {
                    facts.iter().cloned().for_each(|fact| state.evolve(fact));
                    history.extend(facts);
                    walked.push((history, state));
                }
            }
        }
        from = to;
    }
    walked
}

/// What every word is answered in every state. `refusal` puts an error into a few words.
pub fn table<D: Decider, W>(
    states: &[(&str, D)],
    words: &[(&str, W)],
    ask: impl Fn(&W, &D) -> (D::Command, Timestamp),
    refusal: impl Fn(D::Error) -> String,
) -> String {
    let names = [""].into_iter().chain(words.iter().map(|word| word.0)).map(String::from);
    let mut columns = vec![names.collect::<Vec<_>>()];
    for (name, state) in states {
        let answers = words.iter().map(|(_, word)| {
            let (command, now) = ask(word, state);
            state.decide(command, now)
        });
        let cells = answers.map(|answer| match answer {
            Ok(facts) if facts.is_empty() => "·".into(),
            Ok(facts) => facts.iter().map(verb::<D>).collect::<Vec<_>>().join(" + "),
            Err(error) => format!("✗ {}", refusal(error)),
        });
        columns.push([name.to_string()].into_iter().chain(cells).collect());
    }
    let width = |column: &[String]| column.iter().map(|c| c.chars().count()).max().unwrap_or(0);
    let line = |row: usize| {
        let cells = columns.iter().map(|c| format!("{:<1$}", c[row], width(c) + 2));
        cells.collect::<String>().trim_end().to_string() + "\n"
    };
    (0..=words.len()).map(line).collect()
}

/// The transition table of a small aggregate, kept as a golden: what every command is answered in the
/// state after each of these histories. A refusal is written as it is said.
#[track_caller]
pub fn transitions<D: Decider>(
    histories: Vec<(&str, Vec<D::Event>)>,
    commands: Vec<(&str, D::Command)>,
) where
    D::Command: Clone,
{
    let states: Vec<(&str, D)> =
        histories.into_iter().map(|(name, history)| (name, replay(history))).collect();
    let ask = |command: &D::Command, _: &D| (command.clone(), NOW);
    let text = table(&states, &commands, ask, |error| error.to_string());
    golden(&format!("transitions/{}.txt", D::NAME), &format!("· no change   ✗ rejected\n\n{text}"));
}

fn verb<D: Decider>(fact: &D::Event) -> &'static str {
    fact.name().split_once('.').unwrap().1
}

/// A file of the contract, under `schemas/`, that changes only on purpose.
#[track_caller]
pub fn golden(path: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas").join(path);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == text,
        "{path:?} is out of date: set UPDATE_GOLDEN=1, then read the diff\n{text}"
    );
}

/// What an aggregate puts on disk: `examples` starts with `first`, and `after` says which comes
/// next, so that a new event has no place until it is named there. Each is kept as a golden, is
/// read back to the same value, and obeys the conventions of payloads.
#[track_caller]
pub fn examples<D: Decider>(first: D::Event, after: impl Fn(&D::Event) -> Option<D::Event>) {
    let mut names = vec![];
    for fact in std::iter::successors(Some(first), after) {
        let (name, version) = (fact.name(), fact.version());
        let text = serde_json::to_string_pretty(&fact).unwrap() + "\n";
        golden(&format!("events/{name}/{version}.example.json"), &text);
        assert_eq!(serde_json::from_str::<D::Event>(&text).unwrap(), fact, "{text}");
        follows_the_conventions(verb::<D>(&fact), &serde_json::to_string(&fact).unwrap());
        assert!(name.starts_with(&format!("{}.", D::NAME)), "{name}");
        names.push(name.to_string());
    }
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/events");
    let kept = std::fs::read_dir(kept).unwrap();
    for name in kept.map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
        let ours = name.starts_with(&format!("{}.", D::NAME));
        assert!(!ours || names.contains(&name), "{name} is on disk: add it back");
    }
}

/// Numbers that count or order; every other number says its unit.
const PLAIN: [&str; 11] = [
    "attempt",
    "attempts",
    "version",
    "config_version",
    "seq",
    "position",
    "sessions",
    "calls",
    "add",
    "change",
    "destroy",
];
const CODES: [&str; 2] = ["exit_code", "signal"];

#[track_caller]
fn follows_the_conventions(verb: &str, text: &str) {
    assert!(text.starts_with(&format!(r#"{{"type":"{verb}""#)), "{text}");
    assert!(verb.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{verb}");
    for (key, value) in serde_json::from_str::<Value>(text).unwrap().as_object().unwrap() {
        assert!(!value.is_null(), "{key} is null, and should be absent");
        let known = PLAIN.contains(&key.as_str()) || CODES.contains(&key.as_str());
        let unit = ["_bytes", "_ms"].iter().any(|unit| key.ends_with(unit));
        assert!(!value.is_number() || known || unit, "{key} does not say its unit");
    }
}
