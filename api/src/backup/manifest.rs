use std::{fs, path::Path};

use domain::decider::Timestamp;
use schemas::moment;
use serde::{Deserialize, Serialize};

use super::{BackupError, at, files};

/// Format version of the backups that this program writes.
const FORMAT: u32 = 2;
/// Format of the first release. Pre-release versions wrote lower formats.
const FIRST_RELEASED: u32 = 2;
const FILE: &str = "manifest.json";
const SUM_FILE: &str = "manifest.sha256";
/// Maximum size in bytes. The manifest of a million artifacts is smaller.
const MAX_BYTES: u64 = 256 << 20;

/// Contents of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Format version of the backup.
    pub format: u32,
    /// Version of the program that created the backup.
    pub program: String,
    /// Major version of Postgres.
    pub postgres: u32,
    /// Format version of the event log in the dump.
    pub log_format: i32,
    /// Start of the backup.
    #[serde(with = "moment")]
    pub created_at: Timestamp,
    /// Id of the event log in the dump.
    pub log_id: String,
    /// Last position of the log in the dump.
    pub position: u64,
    /// Epoch of the log in the dump.
    pub epoch: u64,
    /// Time of the event at the last position.
    #[serde(with = "moment")]
    pub recorded_at: Timestamp,
    /// Signed checkpoint of the log in the dump.
    pub checkpoint: String,
    /// All files except the manifest and its digest.
    pub files: Vec<File>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Path within the backup.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Digest as `sha256:<hex>`.
    pub digest: String,
}

impl Manifest {
    pub(super) fn format() -> u32 {
        FORMAT
    }

    /// Total size of the files in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Writes the manifest and its digest, which completes a backup.
    pub(super) fn write(&self, backup: &Path) -> Result<(), BackupError> {
        let mut bytes = serde_json::to_vec_pretty(self)
            .map_err(|error| at(&backup.join(FILE))(error.into()))?;
        bytes.push(b'\n');
        let sum = format!("{}  {FILE}\n", hex::encode(proof::sha256(&bytes)));
        files::write(&backup.join(FILE), &bytes)?;
        files::write(&backup.join(SUM_FILE), sum.as_bytes())
    }

    /// Reads the manifest of a complete backup.
    pub(super) fn read(backup: &Path) -> Result<Manifest, BackupError> {
        let path_text = |name: &str| backup.join(name).display().to_string();
        let incomplete = |why: String| BackupError::Incomplete { path: path_text(""), why };
        let damaged =
            |name: &str, why: &str| BackupError::Damaged { path: path_text(name), why: why.into() };
        let read = |name: &str| -> Result<Vec<u8>, BackupError> {
            let path = backup.join(name);
            match fs::metadata(&path) {
                Ok(metadata) if metadata.len() > MAX_BYTES => {
                    Err(damaged(name, "it exceeds the limit of 256 MiB"))
                }
                Ok(_) => fs::read(&path).map_err(at(&path)),
                Err(_) => Err(incomplete(format!("{name} is missing"))),
            }
        };
        let (sum, bytes) = (read(SUM_FILE)?, read(FILE)?);
        let expected = format!("{}  {FILE}\n", hex::encode(proof::sha256(&bytes)));
        if sum != expected.as_bytes() {
            return Err(damaged(FILE, "its digest differs from manifest.sha256"));
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

/// Members that every format version has.
#[derive(Deserialize)]
struct Version {
    format: u32,
    program: String,
}

pub(super) fn program() -> String {
    env!("CARGO_PKG_VERSION").into()
}
