//! The postgres process: started, adopted, stopped.
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

use super::{
    Cluster, EmbeddedError, about,
    account::{self, Account},
};

/// Crash recovery replays what was not checkpointed; minutes at the very worst.
const START: Duration = Duration::from_secs(300);
/// How long a postgres that was left behind may take to answer before it is stopped.
const ADOPT: Duration = Duration::from_secs(60);
/// How long children of a killed postgres are waited for.
const CHILDREN: Duration = Duration::from_secs(30);
/// How large its log may be before a start puts it aside.
const LOG_BYTES: u64 = 64 * 1024 * 1024;
const LOOK: Duration = Duration::from_millis(10);

/// The parent of all Postgres processes of one cluster.
pub(super) struct Postmaster {
    pid: Pid,
    /// Absent when a former server started it.
    child: Option<Child>,
    /// Where its cluster is, and so where it works.
    directory: PathBuf,
}

impl Postmaster {
    /// The postgres that a killed server left running, if it still answers; one that does not is stopped.
    pub(super) async fn left_behind(cluster: &Cluster) -> Result<Option<Self>, EmbeddedError> {
        let file = cluster.directory.join("postmaster.pid");
        let Some(pid) = pid_in(&file) else { return Ok(None) };
        if !is_postgres_of(pid, &cluster.directory) {
            return Ok(None);
        }
        let mut found = Postmaster { pid, child: None, directory: cluster.directory.clone() };
        let since = Instant::now();
        while since.elapsed() < ADOPT && found.runs() {
            if cluster.answers().await {
                info!(pid = pid.as_raw(), "Using the Postgres that the last server left running");
                return Ok(Some(found));
            }
            sleep(LOOK * 5).await;
        }
        warn!(pid = pid.as_raw(), "Stopping a Postgres that was left running and does not answer");
        found.stop(Duration::from_secs(10)).await?;
        Ok(None)
    }

    /// Start one and wait until it takes connections. After a kill the children of the killed one may need
    /// a moment to notice, and until then Postgres refuses to start.
    pub(super) async fn start(cluster: &Cluster) -> Result<Self, EmbeddedError> {
        let since = Instant::now();
        loop {
            // Postgres itself knows stale files, and by them whether children of the killed one are still at
            // work on its memory. Only when nobody is, and yet something has the number, are they in the way.
            let worked_in = is_worked_in(&cluster.directory);
            if !worked_in {
                forget_gone(cluster)?;
            }
            match Self::start_once(cluster).await {
                Err(EmbeddedError::Ended { .. }) if worked_in && since.elapsed() < CHILDREN => {
                    sleep(LOOK * 20).await;
                }
                started => return started,
            }
        }
    }

    async fn start_once(cluster: &Cluster) -> Result<Self, EmbeddedError> {
        put_aside(&cluster.log, LOG_BYTES).map_err(about(cluster.log.display()))?;
        let mut options = fs::OpenOptions::new();
        options.create(true).append(true);
        if let Account::Other { .. } = &cluster.account {
            // Through no link: we are root, and the directory may be another's.
            options.custom_flags(OFlag::O_NOFOLLOW.bits());
        }
        let log = options.open(&cluster.log).map_err(about(cluster.log.display()))?;
        if let Some(data) = cluster.log.parent() {
            account::give(&log, data).map_err(about(cluster.log.display()))?;
        }
        let mut command = cluster.account.command(&cluster.binaries.postgres);
        command.arg("-D").arg(&cluster.directory).arg("-k").arg(&cluster.sockets);
        let settings = ["listen_addresses=", "port=5432", "unix_socket_permissions=0700"];
        // An append that is tried again says in one line why; its statement of many kilobytes tells nobody more.
        let quiet =
            ["logging_collector=off", "max_connections=64", "log_min_error_statement=panic"];
        for setting in settings.into_iter().chain(quiet) {
            command.arg("-c").arg(setting);
        }
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).stderr(log);
        let child = command.spawn().map_err(about(cluster.binaries.postgres.display()))?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        let pid = pid.ok_or_else(|| ended(cluster))?;
        let mut started =
            Postmaster { pid, child: Some(child), directory: cluster.directory.clone() };
        let since = Instant::now();
        while since.elapsed() < START {
            if !started.runs() {
                return Err(ended(cluster));
            }
            if cluster.answers().await {
                return Ok(started);
            }
            sleep(LOOK).await;
        }
        let log = cluster.log.display().to_string();
        started.stop(Duration::from_secs(5)).await?;
        Err(EmbeddedError::Slow { seconds: START.as_secs(), log })
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    fn runs(&mut self) -> bool {
        match &mut self.child {
            // A child that nobody waits for stays in the process table.
            Some(child) => matches!(child.try_wait(), Ok(None)),
            None => is_postgres_of(self.pid, &self.directory),
        }
    }

    pub(super) async fn ended(&mut self) {
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

    /// Fast shutdown; after `patience` an immediate one, from which the next start recovers.
    pub(super) async fn stop(&mut self, patience: Duration) -> Result<(), EmbeddedError> {
        for signal in [Signal::SIGINT, Signal::SIGQUIT] {
            if !self.runs() {
                return Ok(());
            }
            // Gone meanwhile is what we want.
            let _ = kill(self.pid, signal);
            let since = Instant::now();
            while since.elapsed() < patience {
                if !self.runs() {
                    return Ok(());
                }
                sleep(LOOK).await;
            }
            warn!(pid = self.pid.as_raw(), "Postgres does not end after {signal}");
        }
        Err(EmbeddedError::Stuck { pid: self.pid.as_raw() })
    }
}

/// Begin a log anew when it is too large; the one before it is kept.
pub(super) fn put_aside(log: &Path, limit: u64) -> std::io::Result<()> {
    match fs::metadata(log) {
        Ok(found) if found.len() > limit => fs::rename(log, log.with_extension("log.old")),
        Ok(_) => Ok(()),
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(why) => Err(why),
    }
}

fn ended(cluster: &Cluster) -> EmbeddedError {
    let text = fs::read(&cluster.log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().rev().take(3).collect();
    let tail = lines.into_iter().rev().collect::<Vec<_>>().join(" · ");
    EmbeddedError::Ended { log: cluster.log.display().to_string(), tail }
}

/// Remove the files by which Postgres would take another process, or one that ended and that nobody has
/// waited for, for the postgres that was killed.
fn forget_gone(cluster: &Cluster) -> Result<(), EmbeddedError> {
    let socket = cluster.sockets.join(".s.PGSQL.5432.lock");
    for file in [cluster.directory.join("postmaster.pid"), socket] {
        if let Some(pid) = pid_in(&file).filter(|pid| runs(*pid)) {
            info!(pid = pid.as_raw(), file = %file.display(), "Removing a file of a Postgres that ended");
            fs::remove_file(&file).map_err(about(file.display()))?;
        }
    }
    Ok(())
}

fn pid_in(file: &Path) -> Option<Pid> {
    let text = fs::read_to_string(file).ok()?;
    let pid: i32 = text.lines().next()?.trim().parse().ok()?;
    // A negative number means a single-user backend, which nobody here starts.
    (pid > 0).then(|| Pid::from_raw(pid))
}

fn runs(pid: Pid) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Whether any process works in this directory, as all of a cluster's do.
fn is_worked_in(directory: &Path) -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let mut places = processes.filter_map(|process| fs::read_link(process.path().join("cwd")).ok());
    places.any(|place| place == directory)
}

/// A postmaster works in its cluster's directory.
fn is_postgres_of(pid: Pid, directory: &Path) -> bool {
    let process = Path::new("/proc").join(pid.to_string());
    let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
    let at = fs::read_link(process.join("cwd"));
    name.trim() == "postgres" && at.is_ok_and(|at| at == directory)
}
