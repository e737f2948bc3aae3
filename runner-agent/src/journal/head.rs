//! Signed heads: what was in the journal by then can no longer be denied, nor cut off unseen.
//!
//! The last one is kept beside the journal (`journal.head`) and told to the server. One that the journal does not
//! hold any more is evidence: it is put aside under the time of that moment and never overwritten.
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

const LAST: &str = "journal.head";

/// What this runner signs, if it has an entry to sign: the journal as it is now.
pub fn sign(
    journal: &Journal,
    runner: RunnerId,
    key: &SigningKey,
    at: DateTime<Utc>,
) -> io::Result<Option<Envelope>> {
    // Two heads are kept in the order of their entries.
    let _nobody_writes = journal.lock()?;
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
    Heads::of(&journal.data).keep(&head, &envelope)?;
    Ok(Some(envelope))
}

/// What a head says, if one of these keys signed it.
pub fn open(envelope: &Envelope, keys: &[VerifyingKey]) -> anyhow::Result<JournalHead> {
    let payload = dsse::verify_as(JOURNAL_HEAD_TYPE, envelope, keys)?;
    Ok(serde_json::from_slice(&payload)?)
}

/// The heads that are kept here.
#[derive(Debug, Clone)]
pub struct Heads(Data);

impl Heads {
    /// Of this directory.
    pub fn of(data: &Data) -> Self {
        Heads(data.clone())
    }

    /// The last one.
    pub fn last(&self) -> io::Result<Option<Envelope>> {
        let path = self.0.path(LAST);
        data::read_json(&path).map_err(|error| unread(&path, &error))
    }

    /// What those said that the journal did not hold any more when the next one was signed. They are our own files, and
    /// are only compared.
    pub fn denied(&self) -> io::Result<Vec<JournalHead>> {
        let mut files: Vec<PathBuf> = fs::read_dir(self.0.root())?
            .filter_map(|file| Some(file.ok()?.path()))
            .filter(|path| {
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                name.starts_with("journal.head.")
            })
            .collect();
        files.sort_unstable();
        let read = files.iter().filter_map(|path| {
            let read = data::read_json::<Envelope>(path).map_err(|error| unread(path, &error));
            read.transpose()
        });
        let heads = read.map(|envelope| {
            said(&envelope?).ok_or_else(|| Error::other("a journal.head.* is not a head"))
        });
        heads.collect()
    }

    /// What was signed of this journal, as far as it is kept here, without asking who did.
    pub fn signed(&self) -> io::Result<Vec<JournalHead>> {
        let mut signed = self.denied()?;
        signed.extend(self.last()?.as_ref().and_then(said));
        Ok(signed)
    }

    fn keep(&self, head: &JournalHead, envelope: &Envelope) -> io::Result<()> {
        let path = self.0.path(LAST);
        let former = match fs::read(&path) {
            // What is no head is not what was written.
            Ok(bytes) => Some(serde_json::from_slice(&bytes).ok().and_then(|former| said(&former))),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            // What cannot be read may well be: that is nobody's tampering, and no reason to put it aside.
            Err(error) => return Err(unread(&path, &error)),
        };
        let is_denied =
            |former: Option<JournalHead>| former.is_none_or(|former| is_denied(&former, head));
        if former.is_some_and(is_denied) {
            let aside = self.0.path(&format!("{LAST}.{}", ulid::Ulid::new()));
            warn!("The journal is not what was signed before: see `stead-runner journal verify`");
            fs::rename(&path, &aside)?;
        }
        data::replace_json(&path, envelope)
    }
}

/// The same error with the file's name.
fn unread(path: &Path, error: &Error) -> Error {
    Error::new(error.kind(), format!("{} cannot be read: {error}", path.display()))
}

/// Read without asking who signed it.
fn said(envelope: &Envelope) -> Option<JournalHead> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    serde_json::from_slice(&STANDARD.decode(&envelope.payload).ok()?).ok()
}

/// Whether the new head cannot be of the journal that the former one was of.
fn is_denied(former: &JournalHead, new: &JournalHead) -> bool {
    former.journal_id != new.journal_id
        || former.entries > new.entries
        || (former.entries == new.entries && former.chain != new.chain)
}
