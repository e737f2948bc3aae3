//! Text output of the archive commands.
use api::archives::{ArchiveInfo, CreatedArchives, Range};
use cli::render::{Screen, Table, moment, size};

pub(crate) fn created(created: &CreatedArchives) -> String {
    let mut text = String::new();
    for Range { first, last, bytes } in &created.archives {
        text += &format!("Archived positions {first} to {last} ({})\n", size(*bytes));
    }
    if let Some(last) = created.archives.last() {
        text +=
            "The database still contains their rows. After a backup of the archives, drop them:\n";
        text += &format!("  stead archive drop --through {}\n", last.last);
    } else {
        text += "No changes: every closed partition is in an archive\n";
    }
    if let Some(next) = &created.next {
        text += &format!("Next partition: {next}\n");
    }
    text
}

pub(crate) fn list(archives: &[ArchiveInfo], screen: &Screen) -> String {
    if archives.is_empty() {
        return "No archives: the database contains the whole log\n".into();
    }
    let mut table = Table::new(["POSITIONS", "CREATED", "ROWS", "FILES"]);
    for archive in archives {
        table.row([
            format!("{} to {}", archive.first, archive.last),
            moment(&archive.made_at),
            if archive.has_rows { "in the database" } else { "dropped" }.into(),
            archive.bytes.map_or_else(|| "missing".into(), size),
        ]);
    }
    table.text(screen)
}

pub(crate) fn verified(verified: &[Range]) -> String {
    let mut text = String::new();
    for Range { first, last, .. } in verified {
        text += &format!("Verified positions {first} to {last}\n");
    }
    if verified.is_empty() {
        text += "No archives\n";
    }
    text
}

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
