//! How answers look: tables for people, JSON for programs, colours only where somebody can see them.
use std::io::{IsTerminal, Write};

use chrono::{DateTime, SecondsFormat, Utc};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::failure::Failure;

/// What an answer is printed as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    Table,
    Json,
    Ndjson,
}

/// Where to print, and how.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    /// As what.
    pub output: Output,
    colour: bool,
    quiet: bool,
}

/// What a word means, and so its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Good,
    Bad,
    Busy,
    Ask,
    Faint,
    Strong,
    Plain,
}

impl Screen {
    /// Colours when standard output is a terminal and nobody objects.
    pub fn new(output: Output, no_colour: bool, quiet: bool) -> Self {
        let objects = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let colour = !no_colour && !objects && std::io::stdout().is_terminal();
        Screen { output, colour, quiet }
    }

    /// Print one thing: as JSON, or as `people` would have it.
    pub fn one<T: Serialize>(
        &self,
        thing: &T,
        people: impl FnOnce(&Self) -> String,
    ) -> Result<(), Failure> {
        match self.output {
            Output::Table => write(&people(self)),
            Output::Json => write(&format!("{}\n", serde_json::to_string_pretty(thing)?)),
            Output::Ndjson => write(&format!("{}\n", serde_json::to_string(thing)?)),
        }
    }

    /// Print a list: as JSON, a line each, or as a table; `empty` when there is nothing.
    pub fn many<T: Serialize>(
        &self,
        items: &[T],
        empty: &str,
        table: impl FnOnce(&Self) -> Table,
    ) -> Result<(), Failure> {
        match self.output {
            Output::Table if items.is_empty() => write(&format!("{empty}\n")),
            Output::Table => write(&table(self).text(self)),
            Output::Json => write(&format!("{}\n", serde_json::to_string_pretty(items)?)),
            Output::Ndjson => {
                items.iter().try_for_each(|i| write(&format!("{}\n", serde_json::to_string(i)?)))
            }
        }
    }

    /// A remark for a person, beside the answer. Programs do not get it.
    pub fn remark(&self, text: &str) {
        if self.output == Output::Table && !self.quiet {
            eprintln!("{text}");
        }
    }

    /// Whether progress and remarks are suppressed.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Whether colours are wanted.
    pub fn has_colour(&self) -> bool {
        self.colour
    }

    /// Whether the terminal shows more than ASCII.
    pub fn has_unicode(&self) -> bool {
        let set = ["LC_ALL", "LC_CTYPE", "LANG"]
            .into_iter()
            .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
        set.is_some_and(|locale| locale.to_ascii_uppercase().replace('-', "").contains("UTF8"))
    }

    /// A word in the colour of what it means.
    pub fn paint(&self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Good => "32",
            Tone::Bad => "31",
            Tone::Busy => "36",
            Tone::Ask => "33",
            Tone::Faint => "2",
            Tone::Strong => "1",
            Tone::Plain => return text.into(),
        };
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.into() }
    }

    /// A state, its words apart and in colour.
    pub fn state(&self, state: &str) -> String {
        self.paint(tone(state), &state.replace('_', " "))
    }

    /// A bar on standard error, when that is a terminal: `of` what, how far.
    pub fn bar(&self, total: u64, of: &str) -> ProgressBar {
        let template = "{prefix} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}";
        self.progress(ProgressBar::new(total), template, of)
    }

    /// A sign of life for what takes an unknown time.
    pub fn spinner(&self, doing: &str) -> ProgressBar {
        let bar = self.progress(ProgressBar::no_length(), "{spinner} {prefix} {msg}", doing);
        bar.enable_steady_tick(std::time::Duration::from_millis(100));
        bar
    }

    fn progress(&self, bar: ProgressBar, template: &str, prefix: &str) -> ProgressBar {
        if self.quiet {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.with_prefix(prefix.to_owned())
    }
}

/// What a state means to who waits for it. Words that are not known are plain.
pub fn tone(state: &str) -> Tone {
    match state {
        "succeeded" | "active" | "deployed" | "online" => Tone::Good,
        "failed" | "lost" | "denied" | "outcome_unknown" | "revoked" | "disconnected" => Tone::Bad,
        "waiting_for_approval"
        | "cancelling"
        | "disabled"
        | "expired"
        | "stopped"
        | "incomplete" => Tone::Ask,
        "running" | "planning" | "approved" | "applying" | "provisioning" | "updating"
        | "tearing_down" | "deprovisioning" | "claimed" => Tone::Busy,
        "skipped" | "cancelled" | "absent" | "torn_down" | "deprovisioned" => Tone::Faint,
        _ => Tone::Plain,
    }
}

/// Rows under a heading, in columns as wide as they must be.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// The heading.
    pub fn new<const N: usize>(heading: [&str; N]) -> Self {
        Table { rows: vec![heading.map(str::to_owned).to_vec()] }
    }

    /// One more row; empty cells show as a dash.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        let dash = |cell: String| if cell.is_empty() { "-".to_owned() } else { cell };
        self.rows.push(cells.map(dash).to_vec());
    }

    /// Two blanks between columns, none at the end.
    pub fn text(&self, screen: &Screen) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|r| r.get(column)).map(|c| visible(c)).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for (at, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let shown = if at == 0 { screen.paint(Tone::Faint, cell) } else { cell.clone() };
                line += &shown;
                line += &" ".repeat(width.saturating_sub(visible(cell)) + 2);
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// How many characters a person sees: colours are none.
fn visible(cell: &str) -> usize {
    let mut count = 0;
    let mut rest = cell.chars();
    while let Some(c) = rest.next() {
        if c == '\x1b' {
            for end in rest.by_ref() {
                if end == 'm' {
                    break;
                }
            }
        } else {
            count += 1;
        }
    }
    count
}

/// Somebody as a person reads it: by name where there is one, and by the end of the id, because two may have
/// one name. The whole id is in the JSON, and in the log.
pub fn who(actor: &str, name: Option<&str>) -> String {
    let Some(name) = name else { return actor.to_owned() };
    let end = actor.char_indices().rev().nth(5).map_or(actor, |(at, _)| &actor[at..]);
    format!("{name} (…{end})")
}

/// A moment as a person reads it: UTC, to the second.
pub fn moment(at: &DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true).replace('T', " ")
}

/// The same for one that may not have come yet.
pub fn moment_or_dash(at: Option<&DateTime<Utc>>) -> String {
    at.map(moment).unwrap_or_default()
}

/// So many of something: `1 build`, `2 builds`.
pub fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A size as a person reads it.
pub fn size(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

/// Print; a reader that went away (`| head`) ends the command quietly.
pub fn write(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Screen {
        Screen { output: Output::Table, colour: false, quiet: true }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_colours_have_no_width() {
        let mut table = Table::new(["NAME", "STATE"]);
        table.row(["network".into(), "\x1b[32mok\x1b[0m".into()]);
        table.row(["a".into(), String::new()]);
        let expected = "NAME     STATE\nnetwork  \x1b[32mok\x1b[0m\na        -\n";
        assert_eq!(table.text(&plain()), expected);
    }

    #[test]
    fn one_is_not_several() {
        assert_eq!([0, 1, 2].map(|n| count(n, "build")), ["0 builds", "1 build", "2 builds"]);
    }

    #[test]
    fn two_of_one_name_are_told_apart() {
        let ann = |id| who(id, Some("Ann Lee"));
        assert_eq!(ann("prn_01ARZ3NDEKTSV4RRFFQ69G5FAV"), "Ann Lee (…9G5FAV)");
        assert_ne!(ann("prn_01ARZ3NDEKTSV4RRFFQ69G5FAV"), ann("prn_01ARZ3NDEKTSV4RRFFQ69G5FAW"));
        assert_eq!(who("system", None), "system");
    }

    #[test]
    fn a_state_reads_as_words_and_is_coloured_only_for_who_can_see_it() {
        assert_eq!(plain().state("waiting_for_approval"), "waiting for approval");
        let seen = Screen { colour: true, ..plain() };
        assert_eq!(seen.state("failed"), "\x1b[31mfailed\x1b[0m");
    }
}
