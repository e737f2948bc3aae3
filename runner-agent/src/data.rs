//! Data directory: the files of the runner, readable by its owner only.
//!
//! ```text
//! runner.json        identity, server, log                          keys/identity[.next] keys/sealing
//! server-keys.json   trusted keys of the server                     checkpoint   newest verified head
//! journal.ndjson     claims, starts, results, refusals              disabled     disable file
//! agent.json         process of the running agent                   disabled.reserve  blocks for that file
//! budgets.json       disk budgets                                   policy.json  choice of the policy
//! journal.head       signed head of the journal                     evidence/    heads of rejected logs
//! jobs/<execution>/  manifest.json grant.json log.ndjson reports.ndjson cancel.json work/
//! state/ plans/ artifacts/                                          data of the install
//! ```
use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, fchown},
    path::{Path, PathBuf},
    time::SystemTime,
};

use domain::ids::ExecutionId;
use nix::{fcntl::OFlag, unistd::geteuid};
use serde::{Serialize, de::DeserializeOwned};

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

/// The files of one execution.
#[derive(Debug, Clone)]
pub struct JobDir(PathBuf);

impl JobDir {
    pub fn root(&self) -> &Path {
        &self.0
    }
    /// The manifest as it was signed.
    pub fn manifest(&self) -> PathBuf {
        self.0.join("manifest.json")
    }
    /// The grant as it was signed.
    pub fn grant(&self) -> PathBuf {
        self.0.join("grant.json")
    }
    pub fn log(&self) -> PathBuf {
        self.0.join("log.ndjson")
    }
    /// The shim's reports, in order.
    pub fn reports(&self) -> PathBuf {
        self.0.join("reports.ndjson")
    }
    /// Cancel request for the shim.
    pub fn cancel(&self) -> PathBuf {
        self.0.join("cancel.json")
    }
    /// Report payloads that are too long for a report, by digest.
    pub fn blobs(&self) -> PathBuf {
        self.0.join("blobs")
    }
    /// Work directory of the plugin process.
    pub fn work(&self) -> PathBuf {
        self.0.join("work")
    }
    /// File with the pending approval request of the job.
    pub fn approval_request(&self) -> PathBuf {
        self.0.join("question.json")
    }
    /// File with the decision on the approval request.
    pub fn approval_decision(&self) -> PathBuf {
        self.0.join("answer.json")
    }
    /// Disk space reserved for the final report.
    pub fn reserve(&self) -> PathBuf {
        self.0.join("reserve")
    }
    /// Temporary files of the plugin process.
    pub fn scratch(&self) -> PathBuf {
        self.0.join("tmp")
    }
    /// Socket at which scripts register values to redact, while the shim runs.
    pub fn redact(&self) -> PathBuf {
        self.0.join("redact")
    }
    /// File with the path of the job's control group, if the job has one.
    pub fn cgroup(&self) -> PathBuf {
        self.0.join("cgroup")
    }
    /// Standard error of the shim, used when it cannot write a log.
    pub fn shim_errors(&self) -> PathBuf {
        self.0.join("shim.stderr")
    }

    /// Creates the job's directory with its subdirectories `blobs` and `work`.
    pub fn create(&self) -> io::Result<()> {
        [self.root(), &self.blobs(), &self.work()].into_iter().try_for_each(directory)
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Returns the owner of a new file, if root creates it in a directory of another user. A command
/// that runs with `sudo` must leave no file that an agent without root cannot read.
fn other_owner(path: &Path) -> io::Result<Option<(u32, u32)>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    // A bare name is in the current directory.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let owner = fs::metadata(parent.unwrap_or(Path::new(".")))?;
    Ok((owner.uid() != 0).then(|| (owner.uid(), owner.gid())))
}

fn give(file: &File, owner: Option<(u32, u32)>) {
    if let Some((uid, gid)) = owner {
        // In a container or on a network file system, root may not be able to change the owner. The
        // file then belongs to root.
        let _best_effort = fchown(file, Some(uid), Some(gid));
    }
}

/// Creates a directory that only its owner can read, unless the directory exists.
pub fn directory(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    make_directory(path)?;
    let owner = other_owner(path)?;
    if owner.is_some() {
        // Open the directory itself, not a link that replaced it.
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
        give(&OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?, owner);
    }
    Ok(())
}

fn make_directory(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    // The name of the directory must be as durable as its contents.
    sync_parent(path)
}

/// Opens a file for appending, readable by its owner only.
pub fn append(path: &Path) -> io::Result<File> {
    // Change the owner of a new file only: an existing path may be a link. The file gets its owner
    // before its name, so that no process finds a file that it cannot open.
    if other_owner(path)?.is_some() && fs::symlink_metadata(path).is_err() {
        let draft = draft(path);
        drop(fresh(&draft)?);
        // The link fails if another process has created the file. If there is still no file, the
        // code below creates it, owned by root.
        let _best_effort = fs::hard_link(&draft, path);
        remove(&draft)?;
    }
    options().append(true).create(true).read(true).open(path)
}

/// Creates a file that must not exist, readable by its owner only.
pub fn fresh(path: &Path) -> io::Result<File> {
    let owner = other_owner(path)?;
    let file = options().write(true).create_new(true).open(path)?;
    give(&file, owner);
    Ok(file)
}

/// Returns the temporary name of a file that is being written.
fn draft(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    path.with_file_name(format!(".{name}.{}", ulid::Ulid::new()))
}

/// Replaces a file. After a crash, the file has either the old or the new contents.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = draft(path);
    let mut file = self::fresh(&fresh)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    if let Err(error) = written.and_then(|()| fs::rename(&fresh, path)) {
        // On a full disk an incomplete file takes space from the next attempt.
        let _best_effort = fs::remove_file(&fresh);
        return Err(error);
    }
    sync_parent(path)
}

/// Makes the name of a file durable in its directory.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

/// Replaces a file with indented JSON.
pub fn replace_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    replace(path, &serde_json::to_vec_pretty(value)?)
}

/// Size in bytes of a file that [`keep_reserve`] prepares.
const RESERVE: usize = 8 * 1024;
/// Longest text in bytes that fits into a reserved file as JSON, regardless of its characters.
pub const RESERVED_TEXT: usize = 1024;

fn reserve_of(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    path.with_file_name(format!("{name}.reserve"))
}

/// Prepares a file with written blocks, so that [`replace_reserved`] needs no free disk.
pub fn keep_reserve(path: &Path) -> io::Result<()> {
    let reserve = reserve_of(path);
    match fs::metadata(&reserve) {
        Ok(kept) if kept.len() == RESERVE as u64 => Ok(()),
        Ok(_) | Err(_) => replace(&reserve, &[b' '; RESERVE]),
    }
}

/// Replaces a file with JSON. On a full disk it uses the blocks that [`keep_reserve`] prepared.
pub fn replace_reserved<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let bytes = serde_json::to_vec(value)?;
    let Err(error) = replace(path, &bytes) else { return Ok(()) };
    let written = || {
        let mut file = OpenOptions::new().write(true).open(reserve_of(path))?;
        let blanks = RESERVE.checked_sub(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        // JSON allows spaces after a document.
        file.write_all(&[bytes.as_slice(), &vec![b' '; blanks]].concat())?;
        file.sync_data()?;
        fs::rename(reserve_of(path), path)?;
        sync_parent(path)
    };
    written().map_err(|_no_reserve: io::Error| error)
}

/// Reads a JSON file. Returns `None` if the file does not exist.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a file, if it exists.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _gone => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

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
    fn what_cannot_be_replaced_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("x")).unwrap();
        assert!(replace(&dir.path().join("x"), b"y").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
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
