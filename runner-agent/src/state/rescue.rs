//! Rescues a state that Terraform could not write.
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use domain::ids::ExecutionId;
use serde::de::IgnoredAny;

use super::{ERRORED, StateError, StateStore, apply::InProgress, mark_of};
use crate::data;

/// File in the module's directory to which Terraform writes a state that it cannot store.
const LEFT_BEHIND: &str = "errored.tfstate";

impl StateStore {
    /// Rescues the state, if Terraform left one. Returns whether a rescued state exists.
    pub(super) fn rescue(&self, record: &InProgress) -> Result<bool, StateError> {
        let (rescued, dump) =
            (self.rescued_file(record.execution), self.dump_file(record.execution));
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
            unpack(&dump, &rescued).map_err(|error| failed(&dump, error))?;
            return Ok(true);
        }
        // Without disk space Terraform leaves an empty file.
        if has_content(&errored) {
            self.free_reserve().map_err(|error| failed(&errored, error))?;
            move_durably(&errored, &rescued).map_err(|error| failed(&errored, error))?;
            return Ok(true);
        }
        Ok(rescued.is_file())
    }

    fn rescued_file(&self, execution: ExecutionId) -> PathBuf {
        self.dir.join(format!("{ERRORED}{execution}.tfstate"))
    }
}

fn has_content(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.len() > 0)
}

/// Writes the state in a dump to a separate file, and removes the dump.
fn unpack(dump: &Path, to: &Path) -> io::Result<()> {
    let text = fs::read(dump)?;
    let state = printed_state(&text).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "the dump has no complete state")
    })?;
    mark_of(state)?;
    data::replace(to, state)?;
    data::remove(dump)
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

fn move_durably(from: &Path, to: &Path) -> io::Result<()> {
    mark_of(&fs::read(from)?)?;
    File::open(from)?.sync_all()?;
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            data::replace(to, &fs::read(from)?)
        }
        moved => moved.and_then(|()| data::sync_parent(to)),
    }
}
