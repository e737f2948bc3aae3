//! What the host supports, found by trying it.
use std::{
    env, fs,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    sync::LazyLock,
    time::{Duration, Instant},
};

use tokio::{process::Command, sync::Mutex};

use super::{
    RUNNING,
    network::{self, JobNetwork},
    view::CLOSE_NAMESPACES,
};
use crate::{data::Data, processes};

/// Search path if the runner has none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Timeout of the trial of bubblewrap.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time until a failed trial is repeated: a user may install the missing program.
const RETRY: Duration = Duration::from_secs(60);
/// Time until a successful trial is repeated.
const VALID: Duration = Duration::from_secs(600);

/// Result of the last trial in this process.
static LAST: LazyLock<Mutex<Option<(Instant, Support)>>> = LazyLock::new(Mutex::default);

/// Where isolation is tried.
#[derive(Debug, Clone)]
pub struct Trial {
    /// Program of the runner.
    pub runner: PathBuf,
    /// Directory for the files of the trial: that of the jobs. A security module may let bubblewrap use
    /// other directories only, so a trial elsewhere would prove nothing.
    pub dir: PathBuf,
}

impl Trial {
    /// Returns the trial of the running program with this data directory.
    pub(crate) fn of(data: &Data) -> Trial {
        Trial { runner: RUNNING.into(), dir: data.path("jobs") }
    }

    /// Returns the trial of the running program on a host without a data directory.
    pub(crate) fn without_data() -> Trial {
        Trial { runner: RUNNING.into(), dir: env::temp_dir() }
    }
}

/// Programs that work on this host, or the reasons why they do not.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Support {
    /// bubblewrap, with all namespaces that a sandbox needs.
    pub bwrap: Result<PathBuf, String>,
    /// True if this bubblewrap can prevent further user namespaces.
    pub closes_namespaces: bool,
    /// pasta, with a network namespace.
    pub pasta: Result<PathBuf, String>,
}

impl Support {
    /// Returns the support of a host that was not tried.
    pub(crate) fn untried() -> Support {
        let why = || Err("not tried".to_owned());
        Support { bwrap: why(), closes_namespaces: false, pasta: why() }
    }

    /// Returns the support of this host. Tries it only if the last trial is old.
    pub(crate) async fn of_host(trial: &Trial) -> Support {
        let mut last = LAST.lock().await;
        if let Some((at, support)) = &*last {
            let complete = support.bwrap.is_ok() && support.pasta.is_ok();
            if at.elapsed() < if complete { VALID } else { RETRY } {
                return support.clone();
            }
        }
        let support = Support::tried(trial).await;
        *last = Some((Instant::now(), support.clone()));
        support
    }

    async fn tried(trial: &Trial) -> Support {
        let path = env::var_os("PATH").unwrap_or_else(|| PATH.into());
        let bwrap = match network::find(&path, "bwrap") {
            Some(bwrap) => try_bwrap(&bwrap, &[], trial).await.map(|()| bwrap),
            None => Err("bubblewrap is not installed (no bwrap on the PATH)".into()),
        };
        let pasta = match network::find(&path, "pasta") {
            Some(pasta) => try_pasta(&pasta, trial).await.map(|()| pasta),
            None => Err("passt is not installed (no pasta on the PATH)".into()),
        };
        let closes_namespaces = match &bwrap {
            Ok(bwrap) => try_bwrap(bwrap, &[CLOSE_NAMESPACES], trial).await.is_ok(),
            Err(_) => false,
        };
        Support { bwrap, closes_namespaces, pasta }
    }
}

/// Starts a sandbox with the namespaces of every job, and with the mounts that every job needs: a
/// hidden directory, and directories in it that can be written.
async fn try_bwrap(bwrap: &Path, options: &[&str], trial: &Trial) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("bubblewrap cannot be tried: {error}");
    let below = fs::canonicalize(&trial.dir).map_err(failed)?;
    let hidden = tempfile::Builder::new().prefix("trial-").tempdir_in(below).map_err(failed)?;
    let (inside, tmp) = (hidden.path().join("work"), hidden.path().join("tmp"));
    for dir in [&inside, &tmp] {
        fs::DirBuilder::new().mode(0o700).create(dir).map_err(failed)?;
    }
    let mut command = Command::new(bwrap);
    command.args(super::view::NAMESPACES).args(options);
    command.args(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]);
    command.arg("--bind").args([tmp.as_path(), Path::new("/tmp")]);
    command.arg("--tmpfs").arg(hidden.path()).arg("--bind").args([&inside, &inside]);
    command.arg("--remount-ro").arg(hidden.path()).arg("--chdir").arg(&inside);
    command
        .args(["--", "/bin/sh", "-c", ": >written && : >/tmp/written"])
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let child =
        processes::spawn(&mut command).map_err(|error| format!("cannot run bwrap: {error}"))?;
    let output = tokio::time::timeout(TIMEOUT, child.wait_with_output()).await;
    let output = output.map_err(|_| "bwrap does not end".to_owned())?;
    let output = output.map_err(|error| format!("cannot run bwrap: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().next().unwrap_or("it failed without a message");
    Err(format!("bubblewrap cannot create a sandbox: {line}"))
}

/// Creates a network namespace with a connection to the host's network.
async fn try_pasta(pasta: &Path, trial: &Trial) -> Result<(), String> {
    let failed = |error: String| format!("pasta cannot create a network: {error}");
    let network = JobNetwork::create((&trial.runner, pasta), &[], &[]).await;
    network.map_err(|error| failed(format!("{error:#}")))?.stop().await;
    Ok(())
}
