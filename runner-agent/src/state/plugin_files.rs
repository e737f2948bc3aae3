//! Directory in which an external plugin keeps its files.
//!
//! It is the only part of a component's state that the code of a job in a sandbox can change. The
//! records of the runner beside it decide what a later job reads and which file is rescued.
use std::{fs, io, path::PathBuf};

use super::{ERRORED, IN_PROGRESS, LOCK, NOTHING, RESERVE, RESOLVED, STATE, StateStore, local};
use crate::data;

const PLUGIN: &str = "plugin";
/// Directory while it gets the files of an earlier version.
const MOVING: &str = "plugin.moving";

impl StateStore {
    /// Returns the directory in which an external plugin stores its files.
    pub fn plugin_dir(&self) -> PathBuf {
        self.dir.join(PLUGIN)
    }

    /// Creates the directory of the plugin. An earlier version kept the files of the plugin beside
    /// those of the runner; they move. Can be repeated.
    pub fn prepare_plugin_dir(&self) -> io::Result<PathBuf> {
        data::directory(&self.dir)?;
        let dir = self.plugin_dir();
        if fs::symlink_metadata(&dir).is_ok_and(|found| found.is_dir()) {
            return Ok(dir);
        }
        let moving = self.dir.join(MOVING);
        data::directory(&moving)?;
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            if !is_own(&name.to_string_lossy()) {
                fs::rename(self.dir.join(&name), moving.join(&name))?;
            }
        }
        fs::rename(&moving, &dir)?;
        data::sync_parent(&dir)?;
        Ok(dir)
    }
}

/// Returns whether the runner itself uses this name in the directory of a component.
fn is_own(name: &str) -> bool {
    let prefixes = [STATE, ERRORED, RESOLVED, local::ENCRYPTED, "."];
    [NOTHING, IN_PROGRESS, RESERVE, LOCK, local::UPLOADED, PLUGIN, MOVING].contains(&name)
        || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_an_earlier_version_move_and_those_of_the_runner_stay() {
        let root = tempfile::tempdir().unwrap();
        let store = StateStore::new(root.path(), "web");
        fs::create_dir(store.dir()).unwrap();
        let own = [LOCK, NOTHING, "terraform.tfstate", "state.encrypted.next", "errored-x.dump"];
        for name in own.into_iter().chain(["files.json"]) {
            fs::write(store.dir().join(name), name).unwrap();
        }
        let dir = store.prepare_plugin_dir().unwrap();
        assert_eq!(fs::read_to_string(dir.join("files.json")).unwrap(), "files.json");
        for name in own {
            assert!(store.dir().join(name).is_file(), "{name}");
        }
        // Later files beside the directory are not the plugin's.
        fs::write(store.dir().join("later"), "").unwrap();
        assert_eq!(store.prepare_plugin_dir().unwrap(), dir);
        assert!(store.dir().join("later").is_file());
    }
}
