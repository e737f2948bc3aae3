//! Compares the text output of the server's commands with the golden files in `schemas/cli-output`.
use std::{fs, path::Path};

use api::archives::{ArchiveInfo, CreatedArchives, Range};
use cli::render::{Output, Screen};
use serde_json::json;

use crate::{archive, backup};

const ULID: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
const AT: &str = "2026-11-21T01:02:03.000000Z";

/// Compares a text with its golden file. `UPDATE_GOLDEN=1` rewrites the file first: review the
/// difference from a customer's point of view.
fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/cli-output").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), text, "{}", path.display());
}

fn digest(n: u8) -> String {
    format!("sha256:{n:064x}")
}

#[test]
fn archives_match_golden_files() {
    let range = |first: u64, last: u64| Range { first, last, bytes: 734_003_200 };
    let archives = vec![range(1, 10_240_000), range(10_240_001, 20_480_000)];
    let next =
        Some("cannot archive or drop positions 20480001 to 30720000: they are not closed: the log ends at 20491337".into());
    golden("archive-create.txt", &archive::output::created(&CreatedArchives { archives, next }));
    let made_at = AT.parse().unwrap();
    let shown =
        [(1, 10_240_000, false), (10_240_001, 20_480_000, true)].map(|(first, last, has_rows)| {
            ArchiveInfo { first, last, made_at, has_rows, bytes: Some(734_003_200) }
        });
    golden(
        "archive-list.txt",
        &archive::output::list(&shown, &Screen::new(Output::Table, true, true)),
    );
    golden("archive-drop.txt", &archive::output::dropped(&[(1, 10_240_000)]));
}

#[test]
fn backup_and_restore_output() {
    let manifest: api::backup::Manifest = serde_json::from_value(json!({
        "format": 2, "program": "0.1.0", "postgres": 15, "log_format": 3, "created_at": AT, "log_id": ULID,
        "position": 1204, "epoch": 1, "recorded_at": AT, "checkpoint": "",
        "files": [
            {"path": "keys/tokens.key", "bytes": 76, "digest": digest(1)},
            {"path": "database.dump", "bytes": 5_242_880, "digest": digest(2)},
            {"path": "registry/shop/network/blobs/sha256/x", "bytes": 1_048_576, "digest": digest(3)},
        ],
    }))
    .unwrap();
    let out = Path::new("/backups/2026-11-21");
    golden("backup-create.txt", &backup::output::created(&manifest, out));
    let reached = |file: &str, position, missing| {
        let file = file.to_owned();
        api::backup::Coverage { file, position, epoch: 1, missing }
    };
    let mut report = backup::restore::Report {
        data: Some("/var/lib/stead".into()),
        log_id: ULID.into(),
        position: 1204,
        recorded_at: AT.parse().unwrap(),
        root: "ab".repeat(32),
        checkpoints: 3,
        witnessed: vec![
            reached("checkpoint-of-acme", 1190, None),
            reached("checkpoint-of-beta", 1230, Some((1205, 1230))),
        ],
        forged_reports: vec![],
        took_ms: 4_700,
        next_epoch: 2,
        database_owner_url: Some(
            "postgres://stead_owner@%2Fvar%2Flib%2Fstead%2Frun:5432/stead".into(),
        ),
    };
    golden("backup-restore.txt", &backup::output::restored(&report));
    report.database_owner_url = None;
    golden("backup-restore-url.txt", &backup::output::restored(&report));
    report.forged_reports = vec![14, 1201];
    golden("backup-drill.txt", &backup::output::drilled(&report, out));
}
