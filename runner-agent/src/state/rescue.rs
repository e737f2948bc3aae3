//! Rescues a state that Terraform could not write.
use std::{
    fs, io,
    path::{Path, PathBuf},
};

use domain::ids::ExecutionId;
use serde::de::IgnoredAny;
use zeroize::Zeroizing;

use super::{ERRORED, StateError, StateStore, apply::InProgress, local::read_copy, mark_of};
use crate::data;

/// File in the module's directory to which Terraform writes a state that it cannot store.
const LEFT_BEHIND: &str = "errored.tfstate";
/// Suffix of a rescued state.
const ENCRYPTED: &str = ".encrypted";

impl StateStore {
    /// Rescues the state, if Terraform left one. Returns whether a rescued state exists.
    pub(super) fn rescue(&self, record: &InProgress) -> Result<bool, StateError> {
        let execution = record.execution;
        let (rescued, dump) = (self.rescued_file(execution), self.dump_file(execution));
        let errored = record.module_dir.join(LEFT_BEHIND);
        let failed = |file: &Path, error: io::Error| {
            self.blocked(&format!(
                "its apply {} could not write its state, and {} could not be rescued to {} ({error})",
                record.execution,
                file.display(),
                rescued.display()
            ))
        };
        if has_content(&dump) {
            self.free_reserve().map_err(|error| failed(&dump, error))?;
            self.unpack(&dump, execution).map_err(|error| failed(&dump, error))?;
            return Ok(true);
        }
        // Without disk space Terraform leaves an empty file.
        if has_content(&errored) {
            self.free_reserve().map_err(|error| failed(&errored, error))?;
            self.rescue_file(&errored, execution).map_err(|error| failed(&errored, error))?;
            return Ok(true);
        }
        Ok(rescued.is_file())
    }

    fn rescued_file(&self, execution: ExecutionId) -> PathBuf {
        self.dir.join(format!("{ERRORED}{execution}{ENCRYPTED}"))
    }

    /// Encrypts a state that Terraform left behind, and removes its file.
    fn rescue_file(&self, from: &Path, execution: ExecutionId) -> io::Result<()> {
        self.store_rescue(&Zeroizing::new(data::read_without_links(from)?), execution)?;
        data::remove(from)
    }

    /// Encrypts the state in a dump, and removes the dump.
    fn unpack(&self, dump: &Path, execution: ExecutionId) -> io::Result<()> {
        let text = Zeroizing::new(fs::read(dump)?);
        let state = printed_state(&text).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "the dump has no complete state")
        })?;
        self.store_rescue(state, execution)?;
        data::remove(dump)
    }

    /// Encrypts a state that only a decision of a user can make current.
    pub(super) fn store_rescue(&self, state: &[u8], execution: ExecutionId) -> io::Result<()> {
        mark_of(state)?;
        let ciphertext = self.require_cipher()?.encrypt_rescue(execution, state)?;
        data::replace(&self.rescued_file(execution), &ciphertext)
    }

    /// Reads a state that a user chose: a rescued one, an encrypted copy, or a file in clear.
    pub(super) fn read_chosen(&self, file: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
        if let Ok(Some((upload, ciphertext))) = read_copy(file) {
            let state = self.require_cipher()?.decrypt_state(&upload.head, &ciphertext);
            return state.map_err(io::Error::other);
        }
        let bytes = Zeroizing::new(fs::read(file)?);
        let name = file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let execution = name.strip_suffix(ENCRYPTED).and_then(|name| {
            let (_, execution) = name.rsplit_once(ERRORED)?;
            execution.parse().ok()
        });
        match execution {
            Some(execution) => {
                let state = self.require_cipher()?.decrypt_rescue(execution, &bytes);
                state.map_err(io::Error::other)
            }
            None => Ok(bytes),
        }
    }
}

fn has_content(file: &Path) -> bool {
    fs::symlink_metadata(file).is_ok_and(|meta| meta.is_file() && meta.len() > 0)
}

/// Returns the bytes of the member `state` exactly as Terraform printed them, because a number must
/// not lose a digit.
fn printed_state(message: &[u8]) -> Option<&[u8]> {
    let name = br#""state":"#;
    let from = message.windows(name.len()).position(|part| part == name)? + name.len();
    let mut values = serde_json::Deserializer::from_slice(message.get(from..)?).into_iter();
    let _value: IgnoredAny = values.next()?.ok()?;
    message.get(from..from + values.byte_offset())
}
