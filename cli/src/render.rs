//! Output: tables and text for terminals, JSON for programs, colors only on a terminal.
use std::io::{IsTerminal, Write};

use chrono::{DateTime, SecondsFormat, Utc};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::failure::Failure;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    Table,
    Json,
    Ndjson,
}

/// Format, colors and verbosity of the output.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    pub output: Output,
    color: bool,
    quiet: bool,
}

/// Meaning of a piece of text, which determines its color.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Bad,
    Busy,
    Attention,
    Faint,
    Strong,
    Plain,
}

impl Screen {
    /// Enables colors if standard output is a terminal, unless `no_colour` or the variable
    /// `NO_COLOR` disables them.
    pub fn new(output: Output, no_colour: bool, quiet: bool) -> Self {
        let opts_out = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let color = !no_colour && !opts_out && std::io::stdout().is_terminal();
        Screen { output, color, quiet }
    }

    /// Prints one object: as JSON, or as the text that `table_text` returns.
    pub fn print_one<T: Serialize>(
        &self,
        thing: &T,
        table_text: impl FnOnce(&Self) -> String,
    ) -> Result<(), Failure> {
        match self.output {
            Output::Table => write(&table_text(self)),
            Output::Json => write(&format!("{}\n", serde_json::to_string_pretty(thing)?)),
            Output::Ndjson => write(&format!("{}\n", serde_json::to_string(thing)?)),
        }
    }

    /// Prints a list: as JSON, as one line per item, or as a table. Prints `empty` instead of an
    /// empty table.
    pub fn print_list<T: Serialize>(
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

    /// Prints a remark to standard error. Prints nothing with `--quiet` or in formats other than
    /// the table.
    pub fn remark(&self, text: &str) {
        if self.output == Output::Table && !self.quiet {
            eprintln!("{text}");
        }
    }

    /// Returns `true` if the user disabled progress and remarks.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    pub(crate) fn has_color(&self) -> bool {
        self.color
    }

    /// Returns true if the locale uses UTF-8.
    pub(crate) fn has_unicode(&self) -> bool {
        let set = ["LC_ALL", "LC_CTYPE", "LANG"]
            .into_iter()
            .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
        set.is_some_and(|locale| locale.to_ascii_uppercase().replace('-', "").contains("UTF8"))
    }

    /// Returns the text in the color of its meaning.
    pub(crate) fn paint(&self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Good => "32",
            Tone::Bad => "31",
            Tone::Busy => "36",
            Tone::Attention => "33",
            Tone::Faint => "2",
            Tone::Strong => "1",
            Tone::Plain => return text.into(),
        };
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.into() }
    }

    /// Formats a state with spaces instead of underscores, and in color.
    pub(crate) fn state(&self, state: &str) -> String {
        self.paint(tone(state), &state.replace('_', " "))
    }

    /// Progress bar on standard error with the label `of`. Hidden with `--quiet`, or if standard
    /// error is not a terminal.
    pub(crate) fn bar(&self, total: u64, of: &str) -> ProgressBar {
        let template = "{prefix} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}";
        self.progress(ProgressBar::new(total), template, of)
    }

    /// Spinner for work of unknown duration.
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

/// Meaning of a state. Unknown states are plain.
pub(crate) fn tone(state: &str) -> Tone {
    match state {
        "succeeded" | "active" | "deployed" | "online" | "resolved" | "passed" => Tone::Good,
        "failed" | "lost" | "denied" | "outcome_unknown" | "revoked" | "disconnected"
        | "unresolved" => Tone::Bad,
        "waiting_for_approval"
        | "cancelling"
        | "disabled"
        | "expired"
        | "stopped"
        | "incomplete" => Tone::Attention,
        "running" | "planning" | "approved" | "applying" | "provisioning" | "updating"
        | "tearing_down" | "deprovisioning" | "claimed" | "resolving" => Tone::Busy,
        "skipped" | "cancelled" | "absent" | "torn_down" | "deprovisioned" => Tone::Faint,
        _ => Tone::Plain,
    }
}

/// Rows under a heading, in aligned columns.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<const N: usize>(heading: [&str; N]) -> Self {
        Table { rows: vec![heading.map(str::to_owned).to_vec()] }
    }

    /// Adds a row. An empty cell becomes a dash.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        let dash = |cell: String| if cell.is_empty() { "-".to_owned() } else { cell };
        self.rows.push(cells.map(dash).to_vec());
    }

    /// Formats the table, with two spaces between columns and none at line ends.
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
                let painted = if at == 0 { screen.paint(Tone::Faint, cell) } else { cell.clone() };
                line += &painted;
                line += &" ".repeat(width.saturating_sub(visible(cell)) + 2);
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// Number of visible characters, without color codes.
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

/// Formats an actor as its name and the end of its id, because two actors may have the same name.
/// Without a name, returns the id. JSON output and the log contain the whole id.
pub(crate) fn actor_text(actor: &str, name: Option<&str>) -> String {
    let Some(name) = name else { return actor.to_owned() };
    let end = actor.char_indices().rev().nth(5).map_or(actor, |(at, _)| &actor[at..]);
    format!("{name} (…{end})")
}

/// Formats a time in UTC, to the second.
pub fn moment(at: &DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true).replace('T', " ")
}

/// Formats an optional time. `None` is an empty cell, which becomes a dash.
pub fn moment_or_dash(at: Option<&DateTime<Utc>>) -> String {
    at.map(moment).unwrap_or_default()
}

/// Formats a number with its noun: `1 build`, `2 builds`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Formats a size in a readable unit.
pub fn size(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

/// Writes to standard output. A closed pipe (`| head`) ends the command without a message.
pub(crate) fn write(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Screen {
        Screen { output: Output::Table, color: false, quiet: true }
    }

    #[test]
    fn columns_fit_the_widest_cell_without_color_codes() {
        let mut table = Table::new(["NAME", "STATE"]);
        table.row(["network".into(), "\x1b[32mok\x1b[0m".into()]);
        table.row(["a".into(), String::new()]);
        let expected = "NAME     STATE\nnetwork  \x1b[32mok\x1b[0m\na        -\n";
        assert_eq!(table.text(&plain()), expected);
    }

    #[test]
    fn count_uses_the_plural() {
        assert_eq!([0, 1, 2].map(|n| count(n, "build")), ["0 builds", "1 build", "2 builds"]);
    }

    #[test]
    fn actors_with_the_same_name_are_shown_with_ids() {
        let ann = |id| actor_text(id, Some("Ann Lee"));
        assert_eq!(ann("prn_01ARZ3NDEKTSV4RRFFQ69G5FAV"), "Ann Lee (…9G5FAV)");
        assert_ne!(ann("prn_01ARZ3NDEKTSV4RRFFQ69G5FAV"), ann("prn_01ARZ3NDEKTSV4RRFFQ69G5FAW"));
        assert_eq!(actor_text("system", None), "system");
    }

    #[test]
    fn state_is_colored_only_on_a_terminal() {
        assert_eq!(plain().state("waiting_for_approval"), "waiting for approval");
        let seen = Screen { color: true, ..plain() };
        assert_eq!(seen.state("failed"), "\x1b[31mfailed\x1b[0m");
    }
}
