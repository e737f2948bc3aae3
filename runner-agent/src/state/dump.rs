//! State that Terraform prints if it cannot write a state file. The state contains secrets, so the
//! runner writes it to a file and not to the log.
use std::{
    fs::File,
    io::{self, Write as _},
    path::PathBuf,
};

use domain::ids::ExecutionId;

use super::{ERRORED, StateStore};
use crate::data;

/// Start of Terraform's message, after its level.
const MESSAGE: &[u8] = br#""@message":"Emergency state dump""#;
/// Number of bytes at the start of a line that are searched for the message.
const HEAD: usize = 256;

/// Writes the printed state to the store as it arrives.
pub(crate) struct StateDump {
    store: StateStore,
    path: PathBuf,
    file: Option<File>,
    /// True if the next line continues the message.
    continues: bool,
    failed: Option<io::Error>,
}

impl StateDump {
    pub(crate) fn new(store: &StateStore, execution: ExecutionId) -> Self {
        let (path, store) = (store.dump_file(execution), store.clone());
        StateDump { store, path, file: None, continues: false, failed: None }
    }

    /// Writes the line if it belongs to the dump, and returns whether it does. `cut` means that the
    /// next line continues this line.
    pub(crate) fn take(&mut self, line: &[u8], cut: bool) -> bool {
        let begins = line.starts_with(b"{")
            && line[..line.len().min(HEAD)].windows(MESSAGE.len()).any(|part| part == MESSAGE);
        if !self.continues && !begins {
            return false;
        }
        self.continues = cut;
        if let Err(error) = self.write(line) {
            self.failed.get_or_insert(error);
        }
        true
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            missing => {
                self.store.free_reserve()?;
                missing.insert(data::fresh(&self.path)?)
            }
        };
        file.write_all(bytes)
    }

    /// Syncs the dump to disk, or returns the first write error.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        match self.file {
            Some(file) => file.sync_all().and_then(|()| data::sync_parent(&self.path)),
            None => Ok(()),
        }
    }
}

impl StateStore {
    pub(super) fn dump_file(&self, execution: ExecutionId) -> PathBuf {
        self.dir.join(format!("{ERRORED}{execution}.dump"))
    }
}
