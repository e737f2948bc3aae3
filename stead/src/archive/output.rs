//! Text output of the archive commands.
use api::archives::{ArchiveInfo, CreatedArchives, Range};
use cli::render::{Screen, Table, moment, size};

/// Formats new archives.
pub(crate) fn made(made: &CreatedArchives) -> String {
    let mut text = String::new();
    for Range { first, last, bytes } in &made.archives {
        text += &format!("Archived positions {first} to {last} ({})\n", size(*bytes));
    }
    if let Some(last) = made.archives.last() {
        text +=
            "The database still contains their rows. After a backup of the archives, drop them:\n";
        text += &format!("  stead archive drop --through {}\n", last.last);
    } else {
        text += "No changes: every closed partition is in an archive\n";
    }
    if let Some(next) = &made.next {
        text += &format!("Next: {next}\n");
    }
    text
}

/// Formats a list of archives.
pub(crate) fn list(shown: &[ArchiveInfo], screen: &Screen) -> String {
    if shown.is_empty() {
        return "No archives: the database contains the whole log\n".into();
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

/// Formats verified archives.
pub(crate) fn read(read: &[Range]) -> String {
    let mut text = String::new();
    for Range { first, last, .. } in read {
        text += &format!("Verified positions {first} to {last}\n");
    }
    if read.is_empty() {
        text += "No archives\n";
    }
    text
}

/// Formats dropped rows.
pub(crate) fn dropped(dropped: &[(u64, u64)]) -> String {
    let mut text = String::new();
    for (first, last) in dropped {
        text += &format!(
            "Dropped the rows of positions {first} to {last}; their archive remains readable\n"
        );
    }
    if dropped.is_empty() {
        text += "No changes: no archive up to this position has rows in the database\n";
    }
    text
}
