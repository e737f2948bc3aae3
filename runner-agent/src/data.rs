//! Data directory: the files of the runner, readable by its owner only.
//!
//! ```text
//! runner.json        identity, server, log                          keys/identity[.next]
//! keys/install       seed of the install's keys  server-keys.json   trusted keys of the server
//! checkpoint         newest verified head        journal.ndjson     claims, starts, results, refusals              disabled
//! disable file agent.json         process of the running agent                   disabled.reserve
//! blocks for that file budgets.json       disk budgets
//! policy.json  choice of the policy plugin-publishers.json  keys of trusted plugin publishers
//! journal.head       signed head of the journal                     evidence/    heads of rejected
//! logs jobs/<execution>/  manifest.json grant.json log.ndjson reports.ndjson cancel.json work/
//! state/ plans/ artifacts/                                          data of the install
//! ```
mod files;
mod job_dir;

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use domain::ids::ExecutionId;

use self::files::make_directory;
pub use self::{
    files::{
        RESERVED_TEXT, append, directory, fresh, keep_reserve, open_without_links, read_json,
        read_without_links, remove, replace, replace_json, replace_reserved, sync_parent,
    },
    job_dir::JobDir,
};
use crate::host::Process;

/// Largest number of ended executions whose files are kept.
const EXECUTIONS: usize = 200;

/// Data directory of one runner.
#[derive(Debug, Clone)]
pub struct Data(PathBuf);

impl Data {
    /// Opens the directory, and creates it if it does not exist.
    pub fn open(root: &Path) -> io::Result<Self> {
        // The directory belongs to its creator. Files that root creates in the directory belong to
        // the owner of the directory.
        make_directory(root)?;
        let data = Data(fs::canonicalize(root)?);
        for part in ["keys", "jobs", "state", "plans", "artifacts"] {
            directory(&data.path(part))?;
        }
        Ok(data)
    }

    pub fn root(&self) -> &Path {
        &self.0
    }

    /// Returns the path of an entry in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the files of one execution.
    pub fn job(&self, execution: ExecutionId) -> JobDir {
        JobDir(self.0.join("jobs").join(execution.to_string()))
    }

    /// Records the agent that holds [`Data::lock`].
    pub fn name_agent(&self, agent: &Process) -> io::Result<()> {
        replace_json(&self.path("agent.json"), agent)
    }

    /// Returns the running agent, if it recorded itself.
    pub fn agent(&self) -> Option<Process> {
        let agent: Process = read_json(&self.path("agent.json")).ok()??;
        agent.is_alive().is_ok_and(|alive| alive).then_some(agent)
    }

    /// Locks the directory for one agent until the returned file is closed. Returns `None` if
    /// another agent has the lock.
    pub fn lock(&self) -> io::Result<Option<File>> {
        let file = append(&self.path("lock"))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// Removes the work directories of ended executions, which can contain plans and states in clear:
    /// a shim that was killed left them. Those of the executions in `kept` always stay.
    pub fn sweep(&self, kept: &BTreeSet<ExecutionId>) -> io::Result<()> {
        for dir in fs::read_dir(self.path("jobs"))?.flatten() {
            let execution = dir.file_name().to_string_lossy().parse::<ExecutionId>();
            let Some(job) = execution.ok().filter(|execution| !kept.contains(execution)) else {
                continue;
            };
            let job = self.job(job);
            for path in [job.work(), job.scratch(), job.own_tmp()] {
                // Files of another user cannot be removed. The pruning reports that.
                let _next_time = fs::remove_dir_all(path);
            }
        }
        Ok(())
    }

    /// Removes files of ended executions, oldest first, beyond a maximum number or `budget` bytes.
    /// The files of the executions in `kept` always stay. Returns the number of removed bytes, or
    /// an error after the last execution if files of some executions cannot be removed.
    pub fn prune(&self, budget: u64, kept: &BTreeSet<ExecutionId>) -> io::Result<u64> {
        let kept: BTreeSet<_> = kept.iter().map(ToString::to_string).collect();
        let mut over: Vec<(SystemTime, PathBuf)> = fs::read_dir(self.path("jobs"))?
            .filter_map(Result::ok)
            .filter(|dir| !kept.contains(dir.file_name().to_string_lossy().as_ref()))
            .filter_map(|dir| Some((dir.metadata().ok()?.modified().ok()?, dir.path())))
            .collect();
        over.sort_unstable();
        let (mut bytes, mut removed, mut full, mut failed) = (0, 0, false, None);
        for (place, (_, path)) in over.iter().rev().enumerate() {
            // A job may leave files of another user that cannot be measured or removed. Continue
            // with the other executions.
            let length = size(path).unwrap_or_else(|error| {
                failed = Some(error);
                0
            });
            // Older executions are removed as well, even if they would fit.
            full = full || place >= EXECUTIONS || bytes + length > budget;
            match full.then(|| fs::remove_dir_all(path)) {
                None => bytes += length,
                Some(Ok(())) => removed += length,
                Some(Err(error)) => failed = Some(error),
            }
        }
        failed.map_or(Ok(removed), Err)
    }
}

/// Returns the bytes of all files below a path. Files that disappear meanwhile do not count.
pub fn size(path: &Path) -> io::Result<u64> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        found => found?,
    };
    if !found.is_dir() {
        return Ok(found.len());
    }
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    entries.map(|entry| size(&entry?.path())).sum()
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    };

    use super::*;

    #[test]
    fn two_agents_do_not_share_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        let held = data.lock().unwrap();
        assert!(held.is_some());
        assert!(Data::open(dir.path()).unwrap().lock().unwrap().is_none());
        drop(held);
        assert!(data.lock().unwrap().is_some());
    }

    #[test]
    fn the_newest_executions_and_the_open_ones_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        let executions = [1, 2, 3, 4].map(|number| ExecutionId(ulid::Ulid(number)));
        for execution in executions {
            let work = data.job(execution).work();
            fs::create_dir_all(&work).unwrap();
            fs::write(work.join("file"), [0; 1000]).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let each = size(data.job(executions[0]).root()).unwrap();
        assert_eq!(data.prune(2 * each, &[executions[0]].into()).unwrap(), each);
        let is_left = |execution: &ExecutionId| data.job(*execution).root().exists();
        assert_eq!(executions.iter().map(is_left).collect::<Vec<_>>(), [true, false, true, true]);
        // An entry that cannot be removed does not prevent the removal of the others.
        fs::write(data.path("jobs/stray"), "not a directory").unwrap();
        data.prune(0, &[executions[0]].into()).unwrap_err();
        assert_eq!(executions.iter().map(is_left).collect::<Vec<_>>(), [true, false, false, false]);
    }

    #[test]
    fn the_work_of_a_killed_shim_is_removed_and_its_log_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        let executions = [1, 2].map(|number| ExecutionId(ulid::Ulid(number)));
        for execution in executions {
            fs::create_dir_all(data.job(execution).work()).unwrap();
            fs::write(data.job(execution).work().join("tfplan"), "a secret").unwrap();
            fs::create_dir(data.job(execution).own_tmp()).unwrap();
            fs::write(data.job(execution).own_tmp().join("kubeconfig"), "a secret").unwrap();
            fs::write(data.job(execution).cancel(), "{}").unwrap();
        }
        fs::write(data.path("jobs/stray"), "not a directory").unwrap();
        data.sweep(&[executions[0]].into()).unwrap();
        assert_eq!(executions.map(|execution| data.job(execution).work().exists()), [true, false]);
        assert_eq!(executions.map(|one| data.job(one).own_tmp().exists()), [true, false]);
        assert!(executions.iter().all(|execution| data.job(*execution).cancel().exists()));
    }

    #[test]
    fn what_is_kept_is_for_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(&dir.path().join("runner")).unwrap();
        replace(&data.path("keys/identity"), b"x").unwrap();
        replace(&data.path("keys/identity"), b"y").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&data.path("keys/identity")), 0o600);
        assert_eq!(mode(data.root()), 0o700);
        assert_eq!(fs::read(data.path("keys/identity")).unwrap(), b"y");
        assert_eq!(fs::read_dir(data.path("keys")).unwrap().count(), 1);
    }

    #[test]
    fn what_root_makes_in_anothers_directory_is_that_others() {
        let dir = tempfile::tempdir().unwrap();
        let other = (12_345, 12_346);
        if std::os::unix::fs::chown(dir.path(), Some(other.0), Some(other.1)).is_err() {
            // Only root can change the owner of the directory.
            assert!(std::env::var_os("CI").is_none(), "CI must be root");
            eprintln!("SKIPPED: only root can change the owner of a directory");
            return;
        }
        let owner = |path: &Path| fs::metadata(path).map(|file| (file.uid(), file.gid())).unwrap();
        // given a file of root, and a link to it that the other user made
        let elsewhere = tempfile::tempdir().unwrap();
        let roots = elsewhere.path().join("file");
        fs::write(&roots, b"").unwrap();
        let former = owner(&roots);
        std::os::unix::fs::symlink(&roots, dir.path().join("journal.ndjson")).unwrap();
        // when root creates each kind of file
        let data = Data::open(dir.path()).unwrap();
        drop(data.lock().unwrap().unwrap());
        append(&data.path("journal.ndjson")).unwrap();
        append(&data.path("journal.lock")).unwrap().write_all(b"x").unwrap();
        append(&data.path("journal.lock")).unwrap().write_all(b"y").unwrap();
        replace(&data.path("journal.head"), b"x").unwrap();
        directory(&data.path("evidence")).unwrap();
        fresh(&data.path("evidence/one")).unwrap();
        // then each belongs to the other user, and the linked file keeps its owner
        for name in ["lock", "journal.lock", "journal.head", "evidence", "evidence/one", "keys"] {
            assert_eq!(owner(&data.path(name)), other, "{name}");
        }
        assert_eq!(fs::read(data.path("journal.lock")).unwrap(), b"xy");
        assert_eq!(owner(&roots), former);
        let mut names = fs::read_dir(data.root()).unwrap().map(|file| file.unwrap().file_name());
        assert!(names.all(|name| !name.to_string_lossy().starts_with('.')));
    }
}
