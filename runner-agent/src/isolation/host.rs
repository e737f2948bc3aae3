//! What the host supports, found by trying it.
use std::{
    env,
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
use crate::processes;

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

/// Programs that work on this host, or the reasons why they do not.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Support {
    /// bubblewrap, with all namespaces that a sandbox needs.
    pub bwrap: Result<PathBuf, String>,
    /// Whether this bubblewrap can prevent further user namespaces.
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
    pub(crate) async fn of_host() -> Support {
        let mut last = LAST.lock().await;
        if let Some((at, support)) = &*last {
            let complete = support.bwrap.is_ok() && support.pasta.is_ok();
            if at.elapsed() < if complete { VALID } else { RETRY } {
                return support.clone();
            }
        }
        let support = Support::tried().await;
        *last = Some((Instant::now(), support.clone()));
        support
    }

    async fn tried() -> Support {
        let path = env::var_os("PATH").unwrap_or_else(|| PATH.into());
        let bwrap = match network::find(&path, "bwrap") {
            Some(bwrap) => try_bwrap(&bwrap, &[]).await.map(|()| bwrap),
            None => Err("bubblewrap is not installed (no bwrap on the PATH)".into()),
        };
        let pasta = match network::find(&path, "pasta") {
            Some(pasta) => try_pasta(&pasta).await.map(|()| pasta),
            None => Err("passt is not installed (no pasta on the PATH)".into()),
        };
        let closes_namespaces = match &bwrap {
            Ok(bwrap) => try_bwrap(bwrap, &[CLOSE_NAMESPACES]).await.is_ok(),
            Err(_) => false,
        };
        Support { bwrap, closes_namespaces, pasta }
    }
}

/// Starts a sandbox with the namespaces and mounts that every job needs.
async fn try_bwrap(bwrap: &Path, options: &[&str]) -> Result<(), String> {
    let mut command = Command::new(bwrap);
    command
        .args(super::view::NAMESPACES)
        .args(options)
        .args(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"])
        .args(["--", "/bin/sh", "-c", ":"])
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
async fn try_pasta(pasta: &Path) -> Result<(), String> {
    let failed = |error: String| format!("pasta cannot create a network: {error}");
    let dir = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
    let network = JobNetwork::create((RUNNING.as_ref(), pasta), dir.path(), &[], &[]).await;
    network.map_err(|error| failed(format!("{error:#}")))?.stop().await;
    Ok(())
}
