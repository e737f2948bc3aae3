//! Signed heads of the journal. A head proves the entries that it covers: they can be neither
//! changed nor removed undetected.
//!
//! The newest head is in `journal.head`, and the server receives it. A head that contradicts the
//! journal is evidence: its file gets a name with the time and is never overwritten.
use std::{
    fs,
    io::{self, Error, ErrorKind},
    path::{Path, PathBuf},
};

use chrono::{DateTime, Utc};
use domain::ids::RunnerId;
use ed25519_dalek::{SigningKey, VerifyingKey};
use proof::{
    canonical,
    dsse::{self, Envelope},
};
use schemas::runner::{JOURNAL_HEAD_TYPE, JournalHead};
use tracing::warn;

use super::Journal;
use crate::data::{self, Data};
use crate::ids;

const LAST: &str = "journal.head";

/// Signs and stores the head of the journal. Returns `None` if the last line is not in the chain.
pub fn sign(
    journal: &Journal,
    runner: RunnerId,
    key: &SigningKey,
    at: DateTime<Utc>,
) -> io::Result<Option<Envelope>> {
    // The lock keeps the heads in the order of their entries.
    let _lock = journal.lock()?;
    let Some(last) = journal.last_link()? else { return Ok(None) };
    let head = JournalHead {
        version: 1,
        runner,
        journal_id: journal.id()?,
        entries: last.number,
        chain: last.chain.into(),
        at,
    };
    let payload = canonical::json(&head).map_err(Error::other)?;
    let envelope = dsse::sign(JOURNAL_HEAD_TYPE, &payload, key);
    Heads::of(&journal.data).store(&head, &envelope)?;
    Ok(Some(envelope))
}

/// Returns the head in the envelope, if one of these keys signed it.
pub fn open(envelope: &Envelope, keys: &[VerifyingKey]) -> anyhow::Result<JournalHead> {
    let payload = dsse::verify_as(JOURNAL_HEAD_TYPE, envelope, keys)?;
    Ok(serde_json::from_slice(&payload)?)
}

/// Stored heads.
#[derive(Debug, Clone)]
pub struct Heads(Data);

impl Heads {
    /// Returns the heads of this data directory.
    pub fn of(data: &Data) -> Self {
        Heads(data.clone())
    }

    /// Returns the newest head.
    pub fn last(&self) -> io::Result<Option<Envelope>> {
        let path = self.0.path(LAST);
        data::read_json(&path).map_err(|error| with_path(&path, &error))
    }

    /// Returns the heads that the journal contradicted when the next head was signed. Does not
    /// verify their signatures: the runner wrote these files, and callers only compare the heads.
    pub fn contradicted(&self) -> io::Result<Vec<JournalHead>> {
        let mut files: Vec<PathBuf> = fs::read_dir(self.0.root())?
            .filter_map(|file| Some(file.ok()?.path()))
            .filter(|path| {
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                name.starts_with("journal.head.")
            })
            .collect();
        files.sort_unstable();
        let read = files.iter().filter_map(|path| {
            let read = data::read_json::<Envelope>(path).map_err(|error| with_path(path, &error));
            read.transpose()
        });
        let heads = read.map(|envelope| {
            unverified_head(&envelope?).ok_or_else(|| {
                Error::other(
                    "cannot read the signed heads: a journal.head.* file does not contain a head",
                )
            })
        });
        heads.collect()
    }

    /// Returns all stored heads of this journal, without verifying their signatures.
    pub fn signed(&self) -> io::Result<Vec<JournalHead>> {
        let mut signed = self.contradicted()?;
        signed.extend(self.last()?.as_ref().and_then(unverified_head));
        Ok(signed)
    }

    fn store(&self, head: &JournalHead, envelope: &Envelope) -> io::Result<()> {
        let path = self.0.path(LAST);
        let former = match fs::read(&path) {
            // A file without a head was changed, so it is evidence.
            Ok(bytes) => Some(
                serde_json::from_slice(&bytes).ok().and_then(|former| unverified_head(&former)),
            ),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            // An unreadable file may be intact, so it is not evidence.
            Err(error) => return Err(with_path(&path, &error)),
        };
        let is_contradicted =
            |former: Option<JournalHead>| former.is_none_or(|former| contradicts(&former, head));
        if former.is_some_and(is_contradicted) {
            let evidence = self.0.path(&format!("{LAST}.{}", ids::new_ulid()));
            warn!(
                "The journal contradicts an earlier signed head: run `stead-runner journal verify`"
            );
            fs::rename(&path, &evidence)?;
        }
        data::replace_json(&path, envelope)
    }
}

/// Adds the file's name to an error.
fn with_path(path: &Path, error: &Error) -> Error {
    Error::new(error.kind(), format!("cannot read {}: {error}", path.display()))
}

/// Reads a head without verifying its signature.
fn unverified_head(envelope: &Envelope) -> Option<JournalHead> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    serde_json::from_slice(&STANDARD.decode(&envelope.payload).ok()?).ok()
}

fn contradicts(former: &JournalHead, new: &JournalHead) -> bool {
    former.journal_id != new.journal_id
        || former.entries > new.entries
        || (former.entries == new.entries && former.chain != new.chain)
}
