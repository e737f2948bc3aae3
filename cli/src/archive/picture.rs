//! How archives are told to people.
use api::archives::{Made, Range, Shown};

use crate::render::{Screen, Table, moment, size};

/// Archives that were made.
pub(crate) fn made(made: &Made) -> String {
    let mut text = String::new();
    for Range { first, last, bytes } in &made.archives {
        text += &format!("Archived positions {first} to {last} ({})\n", size(*bytes));
    }
    if let Some(last) = made.archives.last() {
        text += "The database still has their rows. When the archives are in a backup too:\n";
        text += &format!("  stead archive drop --through {}\n", last.last);
    } else {
        text += "Nothing to do: every closed partition is in an archive\n";
    }
    if let Some(next) = &made.next {
        text += &format!("Next: {next}\n");
    }
    text
}

/// Those that there are.
pub(crate) fn list(shown: &[Shown], screen: &Screen) -> String {
    if shown.is_empty() {
        return "There are no archives: the database has the whole log\n".into();
    }
    let mut table = Table::new(["POSITIONS", "MADE", "ROWS", "FILES"]);
    for one in shown {
        table.row([
            format!("{} to {}", one.first, one.last),
            moment(&one.made_at),
            if one.has_rows { "in the database" } else { "dropped" }.into(),
            one.bytes.map_or_else(|| "missing".into(), size),
        ]);
    }
    table.text(screen)
}

/// Those that were read back.
pub(crate) fn read(read: &[Range]) -> String {
    let mut text = String::new();
    for Range { first, last, .. } in read {
        text += &format!("Positions {first} to {last} are what was published\n");
    }
    if read.is_empty() {
        text += "There are no archives\n";
    }
    text
}

/// Rows that were dropped.
pub(crate) fn dropped(dropped: &[(u64, u64)]) -> String {
    let mut text = String::new();
    for (first, last) in dropped {
        text += &format!(
            "Dropped the rows of positions {first} to {last}; they are read from their archive\n"
        );
    }
    if dropped.is_empty() {
        text += "Nothing to do: no archive up to there has rows left\n";
    }
    text
}
