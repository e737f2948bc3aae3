//! Path of the running program that stays valid when its file is replaced or removed by an upgrade.
use std::{
    fs::{self, File, Metadata},
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tokio::{
    process::Command,
    time::{sleep, timeout},
};

use crate::{
    data::{self, Data},
    ids, processes,
};

const RUNNING: &str = "/proc/self/exe";
const DIRECTORY: &str = "bin";
/// Timeout for the program to print its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest number of retries to run a new copy. A child that is being forked may still have the
/// file open for writing.
const BUSY_RETRIES: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Returns a path of the running program in the data directory: a hard link where possible,
/// otherwise a copy. Creates the link or copy once per version, from the running program itself.
/// The file at the program's own path may be another version.
pub(crate) fn keep(data: &Data) -> io::Result<PathBuf> {
    let running = fs::metadata(RUNNING)?;
    let path = data.path(DIRECTORY).join(name(&running));
    if fs::metadata(&path).is_ok_and(|copy| copy.len() == running.len()) {
        return Ok(path);
    }
    data::directory(&data.path(DIRECTORY))?;
    let draft = path.with_extension(ids::new_ulid().to_string());
    let written = make(&running, &draft).and_then(|()| fs::rename(&draft, &path));
    if let Err(error) = written {
        let _best_effort = fs::remove_file(&draft);
        return Err(error);
    }
    Ok(path)
}

/// Runs the stored program once. On a file system mounted with `noexec`, the program exists but
/// cannot run.
pub(crate) async fn check(copy: &Path) -> io::Result<()> {
    let why = match timeout(VERSION_TIMEOUT, version(copy)).await {
        Ok(Ok(status)) if status.success() => return Ok(()),
        Ok(Ok(status)) => format!("the program exited with {status}"),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("the program did not exit within {} s", VERSION_TIMEOUT.as_secs()),
    };
    Err(io::Error::other(format!(
        "cannot run {}: {why}; mount the data directory without noexec and let its owner execute files in it",
        copy.display()
    )))
}

async fn version(copy: &Path) -> io::Result<ExitStatus> {
    let mut command = Command::new(copy);
    command
        .arg("--version")
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut tries = 0;
    loop {
        match processes::spawn(&mut command) {
            Ok(mut child) => return child.wait().await,
            Err(error)
                if error.kind() == io::ErrorKind::ExecutableFileBusy && tries < BUSY_RETRIES =>
            {
                tries += 1;
                sleep(BUSY_PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Removes the programs of other versions. The caller must ensure that none of their jobs runs.
pub(crate) fn forget_others(data: &Data) -> io::Result<()> {
    let own = name(&fs::metadata(RUNNING)?);
    for copy in fs::read_dir(data.path(DIRECTORY))?.filter_map(Result::ok) {
        if copy.file_name() != *own {
            fs::remove_file(copy.path())?;
        }
    }
    Ok(())
}

/// Returns a name for one version of the program, from its inode and time.
fn name(running: &Metadata) -> String {
    let (at, part) = (running.mtime(), running.mtime_nsec());
    format!("stead-runner-{:x}-{:x}-{at:x}-{part:x}", running.dev(), running.ino())
}

fn make(running: &Metadata, draft: &Path) -> io::Result<()> {
    // The file at the program's path may be another version by now.
    let linked = fs::read_link(RUNNING).and_then(|path| fs::hard_link(path, draft));
    let is_running = |found: Metadata| (found.dev(), found.ino()) == (running.dev(), running.ino());
    if linked.is_ok() && fs::metadata(draft).is_ok_and(is_running) {
        return Ok(());
    }
    data::remove(draft)?;
    let mut to = data::fresh(draft)?;
    io::copy(&mut File::open(RUNNING)?, &mut to)?;
    to.set_permissions(fs::Permissions::from_mode(0o700))?;
    to.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_program_is_stored_once_and_other_versions_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        let copy = keep(&data).unwrap();
        assert_eq!(fs::read(&copy).unwrap(), fs::read(RUNNING).unwrap());
        let first = fs::metadata(&copy).unwrap().ino();
        assert_eq!(keep(&data).unwrap(), copy);
        assert_eq!(fs::metadata(&copy).unwrap().ino(), first);
        fs::write(data.path(DIRECTORY).join("stead-runner-of-before"), "").unwrap();
        forget_others(&data).unwrap();
        let left: Vec<_> = fs::read_dir(data.path(DIRECTORY)).unwrap().collect();
        assert_eq!(left.len(), 1);
    }
}
