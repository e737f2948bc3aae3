//! Postgres process: start, adoption and stop.
use std::{
    fs,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::{
    fcntl::OFlag,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{process::Child, time::sleep};
use tracing::{info, warn};

use crate::{Account, Cluster, Error, about, give};

/// Timeout of a start. Crash recovery can take minutes.
const START_TIMEOUT: Duration = Duration::from_secs(300);
/// Timeout after which the supervisor stops a Postgres that was left running and accepts no
/// connections.
const ADOPT_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of the wait for children of a killed Postgres.
const CHILDREN_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of an immediate shutdown.
const ABORT_TIMEOUT: Duration = Duration::from_secs(60);
/// Size of the log file above which a start renames it.
const LOG_BYTES: u64 = 64 * 1024 * 1024;
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Parent of all Postgres processes of one cluster. The process continues to run after this value
/// is dropped.
pub struct Postmaster {
    pid: Pid,
    /// Child process, or `None` if an earlier supervisor started it.
    child: Option<Child>,
    /// Directory of the cluster, which is the working directory of its processes.
    directory: PathBuf,
}

impl Postmaster {
    /// Adopts the Postgres that another supervisor left running, or starts a new one.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn run(cluster: &Cluster) -> Result<Postmaster, Error> {
        match Self::left_behind(cluster).await? {
            Some(running) => Ok(running),
            None => Self::start(cluster).await,
        }
    }

    /// Finds the running Postgres of a cluster, which may be unresponsive.
    pub fn find(cluster: &Cluster) -> Option<Postmaster> {
        let directory = cluster.directory.clone();
        let pid = pid_in(&directory.join("postmaster.pid"))?;
        is_postgres_of(pid, &directory).then_some(Postmaster { pid, child: None, directory })
    }

    /// Returns the Postgres that another supervisor left running, if it accepts connections. Stops
    /// it otherwise.
    async fn left_behind(cluster: &Cluster) -> Result<Option<Self>, Error> {
        let Some(mut found) = Self::find(cluster) else { return Ok(None) };
        let pid = found.pid;
        let since = Instant::now();
        while since.elapsed() < ADOPT_TIMEOUT && found.runs() {
            if cluster.answers().await {
                info!(pid = pid.as_raw(), "Adopted a Postgres that was left running");
                return Ok(Some(found));
            }
            sleep(POLL_INTERVAL * 5).await;
        }
        warn!(pid = pid.as_raw(), "Stopping an unresponsive Postgres that was left running");
        found.stop(Duration::from_secs(10)).await?;
        Ok(None)
    }

    /// Starts Postgres and waits until it accepts connections. After a kill, Postgres refuses to
    /// start until the children of the killed process have ended.
    async fn start(cluster: &Cluster) -> Result<Self, Error> {
        cluster.account.can_enter(&cluster.data)?;
        let since = Instant::now();
        loop {
            // Postgres itself detects stale files, and children of the killed process that still
            // use its memory. Stale files prevent a start only if no child runs, but another
            // process has the same id.
            let worked_in = has_processes(&cluster.directory);
            if !worked_in {
                remove_stale_files(cluster)?;
            }
            match Self::start_once(cluster).await {
                Err(Error::Ended { .. }) if worked_in && since.elapsed() < CHILDREN_TIMEOUT => {
                    sleep(POLL_INTERVAL * 20).await;
                }
                started => return started,
            }
        }
    }

    async fn start_once(cluster: &Cluster) -> Result<Self, Error> {
        put_aside(&cluster.log, LOG_BYTES).map_err(about(cluster.log.display()))?;
        let mut options = fs::OpenOptions::new();
        options.create(true).append(true);
        if let Account::Other { .. } = &cluster.account {
            // Never follows a symbolic link: the supervisor is root, and the directory may belong
            // to another user.
            options.custom_flags(OFlag::O_NOFOLLOW.bits());
        }
        let log = options.open(&cluster.log).map_err(about(cluster.log.display()))?;
        give(&log, &cluster.data).map_err(about(cluster.log.display()))?;
        let mut command = cluster.account.command(&cluster.binaries.program("postgres"));
        command.arg("-D").arg(&cluster.directory).arg("-k").arg(&cluster.sockets);
        let listen = if cluster.settings.port.is_some() { "127.0.0.1" } else { "" };
        let network = [format!("listen_addresses={listen}"), format!("port={}", cluster.port())];
        let common = ["unix_socket_permissions=0700", "logging_collector=off"].map(String::from);
        for setting in network.iter().chain(&common).chain(&cluster.settings.more) {
            command.arg("-c").arg(setting);
        }
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).stderr(log);
        let child = command.spawn().map_err(about("postgres"))?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        let pid = pid.ok_or_else(|| ended(cluster))?;
        let mut started =
            Postmaster { pid, child: Some(child), directory: cluster.directory.clone() };
        let since = Instant::now();
        while since.elapsed() < START_TIMEOUT {
            if !started.runs() {
                return Err(ended(cluster));
            }
            if cluster.answers().await {
                return Ok(started);
            }
            sleep(POLL_INTERVAL).await;
        }
        let log = cluster.log.display().to_string();
        started.stop(Duration::from_secs(5)).await?;
        Err(Error::Slow { seconds: START_TIMEOUT.as_secs(), log })
    }

    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    fn runs(&mut self) -> bool {
        match &mut self.child {
            // A child that ended stays in the process table until it is waited for.
            Some(child) => matches!(child.try_wait(), Ok(None)),
            None => is_postgres_of(self.pid, &self.directory),
        }
    }

    pub async fn ended(&mut self) {
        match &mut self.child {
            Some(child) => {
                let _ = child.wait().await;
            }
            None => {
                while self.runs() {
                    sleep(Duration::from_millis(500)).await;
                }
            }
        }
    }

    /// Requests a fast shutdown. After `timeout`, requests an immediate one, from which the next
    /// start recovers.
    ///
    /// # Errors
    /// [`Error::Stuck`].
    pub async fn stop(&mut self, timeout: Duration) -> Result<(), Error> {
        for signal in [Signal::SIGINT, Signal::SIGQUIT] {
            if !self.runs() {
                return Ok(());
            }
            // The process may have ended meanwhile.
            let _ = kill(self.pid, signal);
            let since = Instant::now();
            while since.elapsed() < timeout {
                if !self.runs() {
                    return Ok(());
                }
                sleep(POLL_INTERVAL).await;
            }
            warn!(pid = self.pid.as_raw(), signal = %signal, "Postgres does not stop after a signal");
        }
        Err(Error::Stuck { pid: self.pid.as_raw() })
    }

    /// Stops Postgres immediately, and blocks the thread until it has ended. The next start
    /// recovers.
    ///
    /// # Errors
    /// [`Error::Stuck`].
    pub fn abort(&mut self) -> Result<(), Error> {
        // The process may have ended meanwhile.
        let _ = kill(self.pid, Signal::SIGQUIT);
        let since = Instant::now();
        while self.runs() {
            if since.elapsed() > ABORT_TIMEOUT {
                return Err(Error::Stuck { pid: self.pid.as_raw() });
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

/// Renames a log file that is larger than `limit` bytes to `*.log.old`, and replaces an older file
/// of that name.
fn put_aside(log: &Path, limit: u64) -> std::io::Result<()> {
    match fs::metadata(log) {
        Ok(found) if found.len() > limit => fs::rename(log, log.with_extension("log.old")),
        Ok(_) => Ok(()),
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(why) => Err(why),
    }
}

fn ended(cluster: &Cluster) -> Error {
    let text = fs::read(&cluster.log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().rev().take(3).collect();
    let tail = lines.into_iter().rev().collect::<Vec<_>>().join(" · ");
    Error::Ended { log: cluster.log.display().to_string(), tail }
}

/// Removes files that would make Postgres mistake another process, or a zombie, for the killed
/// Postgres.
fn remove_stale_files(cluster: &Cluster) -> Result<(), Error> {
    let socket = cluster.sockets.join(format!(".s.PGSQL.{}.lock", cluster.port()));
    for file in [cluster.directory.join("postmaster.pid"), socket] {
        if let Some(pid) = pid_in(&file).filter(|pid| runs(*pid)) {
            info!(pid = pid.as_raw(), file = %file.display(), "Removing a file of a stopped Postgres");
            fs::remove_file(&file).map_err(about(file.display()))?;
        }
    }
    Ok(())
}

fn pid_in(file: &Path) -> Option<Pid> {
    let text = fs::read_to_string(file).ok()?;
    let pid: i32 = text.lines().next()?.trim().parse().ok()?;
    // A negative number marks a single-user backend, which Stead never starts.
    (pid > 0).then(|| Pid::from_raw(pid))
}

fn runs(pid: Pid) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Returns true if any process has this working directory, as all processes of a cluster have.
fn has_processes(directory: &Path) -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let mut places = processes.filter_map(|process| fs::read_link(process.path().join("cwd")).ok());
    places.any(|place| place == directory)
}

/// Returns true if the process is a Postgres with this working directory.
fn is_postgres_of(pid: Pid, directory: &Path) -> bool {
    let process = Path::new("/proc").join(pid.to_string());
    let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
    let at = fs::read_link(process.join("cwd"));
    name.trim() == "postgres" && at.is_ok_and(|at| at == directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oversized_log_is_rotated() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("postgres.log");
        put_aside(&log, 3).unwrap();
        fs::write(&log, "abc").unwrap();
        put_aside(&log, 3).unwrap();
        assert!(log.exists());
        fs::write(&log, "abcd").unwrap();
        put_aside(&log, 3).unwrap();
        assert!(!log.exists());
        assert_eq!(fs::read(dir.path().join("postgres.log.old")).unwrap(), b"abcd");
    }
}
