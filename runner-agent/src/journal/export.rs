//! A journal for somebody else: its lines as they are on disk, below a signed head.
//!
//! The file's first line is a [`Header`]; everything else is as it was written. Who has the runner's public key needs
//! nothing more to see that nothing was changed, left out or put in up to the head.
use std::io;

use anyhow::{Context as _, bail, ensure};
use domain::ids::RunnerId;
use ed25519_dalek::VerifyingKey;
use proof::dsse::Envelope;
use schemas::runner::JournalHead;
use serde::{Deserialize, Serialize};

use super::{Examined, examine, head};

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    /// 1: what the rest of the file is.
    stead_journal: u32,
    /// Whose journal. A hint: the head says it signed.
    runner: RunnerId,
    /// A hint as well: who reads has to know the key from elsewhere.
    identity_key: String,
    /// The signed head.
    head: Envelope,
}

/// What an exported journal turned out to be.
#[derive(Debug)]
pub struct Exported {
    /// What was signed.
    pub head: JournalHead,
    /// What stands below it.
    pub examined: Examined,
    /// Entries that were written after the head: nobody has signed them yet.
    pub unsigned: u64,
}

/// The file's bytes.
///
/// # Errors
/// If it cannot be written as JSON.
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

/// Verify a file under keys that are known to be the runner's.
///
/// # Errors
/// What is wrong with it: the first entry that is, by its number.
pub fn verify(file: &[u8], keys: &[VerifyingKey]) -> anyhow::Result<Exported> {
    let mut lines = file.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let header: Header = serde_json::from_slice(first).context(
        "this is no exported journal: `stead-runner journal export --out FILE` writes one",
    )?;
    if header.stead_journal != 1 {
        bail!("the file is of a later version: verify it with a newer stead-runner");
    }
    let head = head::open(&header.head, keys).with_context(|| {
        format!(
            "the head is not signed by the key that you gave; the file itself names {}",
            header.identity_key
        )
    })?;
    ensure!(head.runner == header.runner, "the head is of another runner than the file");
    let lines: Vec<_> = lines.collect();
    let examined = examine(&lines)?;
    let unsigned = examined.holds(&head)?;
    Ok(Exported { head, examined, unsigned })
}
