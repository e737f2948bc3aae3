//! Directory in which an external plugin keeps its files.
//!
//! It is the only part of a component's state that the code of a job in a sandbox can change. The
//! records of the runner beside it decide what a later job reads and which file is rescued.
use std::{fs, io, path::PathBuf};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, RenameFlags, renameat2},
};

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

    /// Returns the directory in which the plugin keeps its files outside of a sandbox: that of the
    /// component, as in earlier versions, until a job in a sandbox has moved the files.
    pub fn plugin_dir_in_use(&self) -> io::Result<PathBuf> {
        match self.plugin_dir().exists() || self.dir.join(MOVING).exists() {
            true => self.prepare_plugin_dir(),
            false => data::directory(&self.dir).map(|()| self.dir.clone()),
        }
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
                unless_done(fs::rename(self.dir.join(&name), moving.join(&name)))?;
            }
        }
        // A preflight and a plan can do this at the same time. The directory that the other job uses
        // already must stay.
        let flags = RenameFlags::RENAME_NOREPLACE;
        unless_done(match renameat2(AT_FDCWD, &moving, AT_FDCWD, &dir, flags) {
            // NFS and some others have no such flag. There, a directory with files stays, too.
            Err(Errno::EINVAL | Errno::ENOSYS) => fs::rename(&moving, &dir),
            moved => moved.map_err(Into::into),
        })?;
        if moving.exists() {
            let _best_effort = fs::remove_dir(&moving);
        }
        data::sync_parent(&dir)?;
        Ok(dir)
    }
}

/// Errors after another job has moved the file or the directory.
const DONE: [io::ErrorKind; 3] =
    [io::ErrorKind::NotFound, io::ErrorKind::AlreadyExists, io::ErrorKind::DirectoryNotEmpty];

/// Returns no error if another job has moved the file or the directory.
fn unless_done(moved: io::Result<()>) -> io::Result<()> {
    match moved {
        Err(error) if DONE.contains(&error.kind()) => Ok(()),
        other => other,
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
    fn several_jobs_can_create_the_directory_at_the_same_time() {
        for _ in 0..50 {
            let root = tempfile::tempdir().unwrap();
            let store = StateStore::new(root.path(), "web");
            fs::create_dir(store.dir()).unwrap();
            fs::write(store.dir().join("files.json"), "kept").unwrap();
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| store.prepare_plugin_dir().unwrap());
                }
            });
            let kept = fs::read_to_string(store.plugin_dir().join("files.json")).unwrap();
            assert_eq!(kept, "kept");
        }
    }

    #[test]
    fn files_stay_until_a_job_runs_in_a_sandbox() {
        let root = tempfile::tempdir().unwrap();
        let store = StateStore::new(root.path(), "web");
        assert_eq!(store.plugin_dir_in_use().unwrap(), store.dir());
        fs::write(store.dir().join("files.json"), "kept").unwrap();
        assert_eq!(store.plugin_dir_in_use().unwrap(), store.dir());
        assert!(store.dir().join("files.json").is_file());
        // A later job without a sandbox finds what a job in a sandbox has moved.
        let moved = store.prepare_plugin_dir().unwrap();
        assert_eq!(store.plugin_dir_in_use().unwrap(), moved);
        assert!(moved.join("files.json").is_file());
    }

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
