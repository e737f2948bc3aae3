//! What a backup says it is.
use std::{fs, path::Path};

use domain::decider::Timestamp;
use schemas::moment;
use serde::{Deserialize, Serialize};

use super::{BackupError, at, files};

/// The version of this file.
const FORMAT: u32 = 2;
/// Format of the first release. Lower ones are of pre-release versions.
const FIRST_RELEASED: u32 = 2;
const FILE: &str = "manifest.json";
const SUM: &str = "manifest.sha256";
/// So much of it is read: a million artifacts are less.
const LONGEST: u64 = 256 << 20;

/// What is in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// How to read the rest.
    pub format: u32,
    /// The program that made it.
    pub program: String,
    /// The major version of the Postgres that it is of.
    pub postgres: u32,
    /// Format of the log.
    pub log_format: i32,
    /// When it was begun.
    #[serde(with = "moment")]
    pub created_at: Timestamp,
    /// The log.
    pub log_id: String,
    /// Its last position.
    pub position: u64,
    /// Its epoch.
    pub epoch: u64,
    /// When the event at that position was recorded.
    #[serde(with = "moment")]
    pub recorded_at: Timestamp,
    /// The signed checkpoint of exactly what the dump holds.
    pub checkpoint: String,
    /// Everything else, in the order in which it was taken.
    pub files: Vec<File>,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Where it is in the backup.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// `sha256:<hex>` of it.
    pub digest: String,
}

impl Manifest {
    /// One that this program makes.
    pub(super) fn format() -> u32 {
        FORMAT
    }

    /// How many bytes the backup has.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The last thing that makes a directory a backup.
    pub(super) fn write(&self, backup: &Path) -> Result<(), BackupError> {
        let mut bytes = serde_json::to_vec_pretty(self)
            .map_err(|error| at(&backup.join(FILE))(error.into()))?;
        bytes.push(b'\n');
        let sum = format!("{}  {FILE}\n", hex::encode(proof::sha256(&bytes)));
        files::write(&backup.join(FILE), &bytes)?;
        files::write(&backup.join(SUM), sum.as_bytes())
    }

    /// The manifest of a directory, if it is of a whole backup.
    pub(super) fn read(backup: &Path) -> Result<Manifest, BackupError> {
        let shown = |name: &str| backup.join(name).display().to_string();
        let incomplete = |why: String| BackupError::Incomplete { path: shown(""), why };
        let damaged =
            |name: &str, why: &str| BackupError::Damaged { path: shown(name), why: why.into() };
        let read = |name: &str| -> Result<Vec<u8>, BackupError> {
            let path = backup.join(name);
            match fs::metadata(&path) {
                Ok(found) if found.len() > LONGEST => Err(damaged(name, "it is too long")),
                Ok(_) => fs::read(&path).map_err(at(&path)),
                Err(_) => Err(incomplete(format!("it has no {name}"))),
            }
        };
        let (sum, bytes) = (read(SUM)?, read(FILE)?);
        let expected = format!("{}  {FILE}\n", hex::encode(proof::sha256(&bytes)));
        if sum != expected.as_bytes() {
            return Err(damaged(FILE, "it is not what manifest.sha256 says"));
        }
        let version: Version =
            serde_json::from_slice(&bytes).map_err(|why| damaged(FILE, &why.to_string()))?;
        if version.format > FORMAT {
            let (made_by, ours) = (version.program, program());
            return Err(BackupError::Newer { what: "stead", made_by, ours });
        }
        if version.format < FIRST_RELEASED {
            let (found, known) = (version.format, FORMAT);
            return Err(BackupError::PreRelease { found, known });
        }
        serde_json::from_slice(&bytes).map_err(|why| damaged(FILE, &why.to_string()))
    }
}

/// What every version of the file has.
#[derive(Deserialize)]
struct Version {
    format: u32,
    program: String,
}

/// This program's version.
pub(super) fn program() -> String {
    env!("CARGO_PKG_VERSION").into()
}
