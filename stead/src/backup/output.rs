//! Text output of backups and restores.
use std::path::Path;

use api::backup::Manifest;
use cli::{
    client::sanitize,
    render::{moment, size},
};

use super::restore::Report;

pub(crate) fn created(manifest: &Manifest, out: &Path) -> String {
    let mut text = format!("Created {} ({})\n", out.display(), size(manifest.bytes()));
    text += &recovery_point(manifest.position, &moment(&manifest.recorded_at));
    text += &format!("  Log             {}\n", manifest.log_id);
    let artifacts = manifest.files.iter().filter(|file| file.path.contains("/blobs/")).count();
    text += &format!("  Artifacts       {artifacts} blobs\n");
    text +=
        "The backup contains the server's signing keys: store it securely, on another machine.\n";
    text += &format!("Test the backup: stead backup drill --from {}\n", out.display());
    text
}

pub(crate) fn restored(report: &Report) -> String {
    let data = report.data.as_deref().unwrap_or(Path::new("")).display().to_string();
    let mut text = format!("Restored into {data} and verified in {}\n", duration_text(report));
    text += &report_lines(report);
    text += "Next steps:\n";
    match &report.database_owner_url {
        Some(_) => text += &format!("  stead up --data {data}\n"),
        None => {
            text += &format!("  DATABASE_URL=postgres://stead_app@… stead serve --data {data} …\n")
        }
    }
    text += &format!(
        "Runners that have seen a position after {} reject this log. Announce the restore with a new epoch:\n",
        report.position
    );
    let url = report.database_owner_url.as_deref().unwrap_or("…");
    let epoch = report.next_epoch;
    text += &format!("  DATABASE_OWNER_URL={url} stead migrate --raise-epoch {epoch}\n");
    text += "Tell each customer which positions are missing; they accept the log with:\n";
    text += &format!("  stead-runner witness accept --epoch {epoch}\n");
    text
}

pub(crate) fn drilled(report: &Report, from: &Path) -> String {
    let from = from.display();
    let text = format!(
        "Restore drill passed: {from} restored and verified in {}\n",
        duration_text(report)
    );
    text + &report_lines(report)
}

fn report_lines(report: &Report) -> String {
    let mut text = recovery_point(report.position, &moment(&report.recorded_at));
    text += &format!("  Log             {}\n", report.log_id);
    text += &format!("  Root            {}\n", report.root);
    text += &format!("  Agrees with     {} published checkpoints\n", report.checkpoints);
    for witnessed in &report.witnessed {
        let file = sanitize(&witnessed.file);
        text += &match witnessed.missing {
            None => format!("  Agrees with     {file}, at position {}\n", witnessed.position),
            Some((first, last)) => format!(
                "  Missing         positions {first} to {last}: the log contained them when {file} was signed\n"
            ),
        };
    }
    if !report.forged_reports.is_empty() {
        let positions: Vec<_> = report.forged_reports.iter().map(u64::to_string).collect();
        text += &format!(
            "  Forged reports  position {}: their runner did not sign them; see `stead audit verify`\n",
            positions.join(", ")
        );
    }
    text
}

fn recovery_point(position: u64, at: &str) -> String {
    format!("  Recovery point  position {position}, recorded {at}\n")
}

fn duration_text(report: &Report) -> String {
    format!("{:.1} s", report.took_ms as f64 / 1000.0)
}
