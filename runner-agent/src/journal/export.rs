//! Exported journal: its lines as they are on disk, after a signed head.
//!
//! The first line of the file is a [`Header`]. With the runner's public key, a reader can verify
//! that no line was changed, removed or inserted up to the head.
use std::io;

use anyhow::{Context as _, bail, ensure};
use domain::ids::RunnerId;
use ed25519_dalek::VerifyingKey;
use proof::dsse::Envelope;
use schemas::runner::JournalHead;
use serde::{Deserialize, Serialize};

use super::{VerifiedJournal, examine, head};

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    /// Version of the file format: 1.
    stead_journal: u32,
    /// Runner of the journal; not trusted, because only the head is signed.
    runner: RunnerId,
    /// Public key of the runner; not trusted, because the reader must know the key from another
    /// source.
    identity_key: String,
    /// Head of the journal, signed with the runner's key.
    head: Envelope,
}

/// Verified contents of an exported journal.
#[derive(Debug)]
pub struct Exported {
    /// Head of the journal, whose signature was verified.
    pub head: JournalHead,
    /// Result of the check of the lines after the header.
    pub examined: VerifiedJournal,
    /// Number of entries after the head, which are not signed.
    pub unsigned: u64,
}

/// Returns the bytes of an exported journal.
///
/// # Errors
/// Fails if the header cannot be written as JSON.
pub fn export(
    runner: RunnerId,
    identity_key: String,
    head: Envelope,
    lines: &[Vec<u8>],
) -> io::Result<Vec<u8>> {
    let mut file = serde_json::to_vec(&Header { stead_journal: 1, runner, identity_key, head })?;
    file.push(b'\n');
    for line in lines {
        file.extend_from_slice(line);
        file.push(b'\n');
    }
    Ok(file)
}

/// Verifies an exported journal with trusted public keys of the runner.
///
/// # Errors
/// Fails if the file is not an exported journal, if none of `keys` signed its head, or if an entry
/// is wrong. In the last case, the error names the first wrong entry by its number.
pub fn verify(file: &[u8], keys: &[VerifyingKey]) -> anyhow::Result<Exported> {
    let mut lines = file.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let header: Header = serde_json::from_slice(first).context(
        "cannot verify the file: it is not an exported journal; write one with `stead-runner journal export --out FILE`",
    )?;
    if header.stead_journal != 1 {
        bail!(
            "cannot verify the file: it has format version {}; use a newer stead-runner",
            header.stead_journal
        );
    }
    let head = head::open(&header.head, keys).with_context(|| {
        format!(
            "cannot verify the head: it is not signed by the key that you passed; the file names the key {}",
            header.identity_key
        )
    })?;
    ensure!(
        head.runner == header.runner,
        "cannot verify the file: its first line names the runner {}, but its signed head names {}",
        header.runner,
        head.runner
    );
    let lines: Vec<_> = lines.collect();
    let examined = examine(&lines)?;
    let unsigned = examined.holds(&head)?;
    Ok(Exported { head, examined, unsigned })
}
