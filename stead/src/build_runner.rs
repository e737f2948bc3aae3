//! Runs the build runner as a child process of `stead up`. The build runner is the same program as
//! a runner in a customer account, and enrols in the same way. `stead up` restarts the build runner
//! when it exits, and stops it with the server. The shims of running builds continue.
use std::{
    fs::{self, OpenOptions},
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use api::{App, Call, issue_enrolment_token, new_ulid};
use domain::{actor::Actor, enrolment::Purpose};
use event_log::Meta;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use sha2::{Digest as _, Sha256};
use tokio::{
    process::{Child, Command},
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::serve::{LogFormat, sibling_program};

/// First back-off before a restart. Each restart doubles it until the process stays up.
const BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Uptime after which the back-off is reset.
const STABLE_UPTIME: Duration = Duration::from_secs(60);
/// Timeout for the build runner to close its session.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Time between SIGTERM and SIGKILL for an orphaned build runner. The server may no longer exist,
/// so the build runner may be unable to close its session.
const ORPHAN_TIMEOUT: Duration = Duration::from_millis(1500);

/// Handle of a supervised build runner.
pub(crate) struct BuildRunner {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

struct Supervisor {
    app: App,
    program: PathBuf,
    data: PathBuf,
    /// The server's certificate chain, if the runner listener uses TLS.
    certificate: Option<PathBuf>,
    /// Format of the build runner's log lines.
    format: LogFormat,
    /// Values of `--registry-mirror`.
    registry_mirrors: Vec<String>,
    /// Public keys of publishers whose plugins the build runner executes.
    publishers: Vec<String>,
    stop: CancellationToken,
}

impl BuildRunner {
    /// Starts and supervises a build runner. Returns `None` if `stead-runner` is neither in the
    /// directory of this program nor in `PATH`.
    pub(crate) fn start(
        app: App,
        certificate: Option<&Path>,
        format: LogFormat,
        registry_mirrors: Vec<String>,
        publishers: Vec<String>,
    ) -> Option<BuildRunner> {
        let program = sibling_program("stead-runner").or_else(|| on_path("stead-runner"))?;
        let (stop, data) = (CancellationToken::new(), app.config.data.join("build-runner"));
        let certificate = certificate.filter(|_| app.config.runner_url.starts_with("https:"));
        let certificate = certificate.map(Path::to_path_buf);
        let stopped = stop.clone();
        let keeper = Supervisor {
            app,
            program,
            data,
            certificate,
            format,
            registry_mirrors,
            publishers,
            stop: stopped,
        };
        #[expect(clippy::disallowed_methods, reason = "`BuildRunner::stop` awaits the task")]
        let task = tokio::spawn(keeper.run());
        Some(BuildRunner { stop, task })
    }

    /// Stops the build runner. Running builds continue, and the next build runner adopts them.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        let _ = self.task.await;
    }
}

impl Supervisor {
    async fn run(self) {
        self.end_orphan().await;
        let mut wait = BACKOFF;
        while !self.stop.is_cancelled() {
            let since = Instant::now();
            match self.start().await {
                Ok(child) => self.watch(child).await,
                Err(error) => warn!(error = %error, "Cannot start the build runner"),
            }
            if since.elapsed() > STABLE_UPTIME {
                wait = BACKOFF;
            }
            let _ = self.stop.run_until_cancelled(sleep(wait)).await;
            wait = (wait * 2).min(MAX_BACKOFF);
        }
    }

    async fn start(&self) -> anyhow::Result<Child> {
        let enrolled = self.is_enrolled();
        let log = self.app.config.data.join("build-runner.log");
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        let mut command = Command::new(&self.program);
        // Policies protect customers from the vendor. This runner belongs to the vendor.
        command.args(["--no-policy", "--mode", "build"]);
        command.args(["--server", &self.app.config.runner_url, "--data"]);
        command.arg(&self.data);
        for mirror in &self.registry_mirrors {
            command.args(["--registry-mirror", mirror]);
        }
        // The runner pushes only to a registry that its own option names.
        if let Some(registry) = &self.app.config.registry {
            command.args(["--registry", &registry.to_string()]);
        }
        for publisher in &self.publishers {
            command.args(["--plugin-publisher", publisher]);
        }
        // Plugins find their tools where the server's user has them.
        if std::env::var_os("PATH").is_some() {
            command.args(["--pass-env", "PATH"]);
        }
        command.env("STEAD_LOG_FORMAT", self.format.as_str());
        if let Some(certificate) = &self.certificate {
            command.arg("--ca-fingerprint").arg(fingerprint(certificate)?);
        }
        if !enrolled {
            // A directory of another log or of an interrupted enrolment cannot be used.
            match fs::remove_dir_all(&self.data) {
                Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why.into()),
                Err(_) | Ok(()) => {}
            }
            let meta = Meta::new(Actor::System, new_ulid().to_string());
            let issued = issue_enrolment_token(&self.app, &Call::of(meta), Purpose::Build).await;
            let issued = issued.map_err(|problem| anyhow::anyhow!(problem.detail))?;
            // Every local user can read the arguments of a process, but not its environment.
            command.env("STEAD_ENROLMENT_TOKEN", issued.value.token);
            command.args(["--server-key", &self.app.keys.fingerprint()]);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let child = command.spawn()?;
        if let Some(pid) = child.id() {
            fs::write(self.pid_file(), pid.to_string())?;
            info!(pid, enrolled, "Started the build runner");
        }
        Ok(child)
    }

    async fn watch(&self, mut child: Child) {
        let ended = self.stop.run_until_cancelled(child.wait()).await;
        match ended {
            Some(Ok(status)) => {
                warn!(status = %status, "Build runner exited; the server restarts it")
            }
            Some(Err(error)) => warn!(error = %error, "Cannot wait for the build runner"),
            None => {
                signal(child.id(), Signal::SIGTERM);
                if timeout(STOP_TIMEOUT, child.wait()).await.is_err() {
                    let _ = child.kill().await;
                }
            }
        }
        let _ = fs::remove_file(self.pid_file());
    }

    /// Returns true if the data directory belongs to a runner of this log.
    fn is_enrolled(&self) -> bool {
        let stored = fs::read(self.data.join("runner.json")).ok();
        let stored: Option<serde_json::Value> =
            stored.and_then(|text| serde_json::from_slice(&text).ok());
        let log = stored.as_ref().and_then(|stored| stored.get("log_id")?.as_str());
        log == Some(self.app.log().log_id())
    }

    fn pid_file(&self) -> PathBuf {
        self.app.config.data.join("build-runner.pid")
    }

    /// Stops the build runner that a killed server left behind. That build runner would keep the
    /// data directory locked.
    async fn end_orphan(&self) {
        let Some(pid) = fs::read_to_string(self.pid_file()).ok().and_then(|pid| pid.parse().ok())
        else {
            return;
        };
        if self.is_ours(pid) {
            info!(pid, "Stopping the orphaned build runner of the previous server");
            signal(Some(pid), Signal::SIGTERM);
        }
        let since = Instant::now();
        while self.is_ours(pid) {
            if since.elapsed() > ORPHAN_TIMEOUT {
                signal(Some(pid), Signal::SIGKILL);
            }
            sleep(Duration::from_millis(50)).await;
        }
        let _ = fs::remove_file(self.pid_file());
    }

    /// Returns true if the command line of the process names the directory of this server's build
    /// runner. Another process may have the same pid.
    fn is_ours(&self, pid: u32) -> bool {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let data = self.data.as_os_str().as_encoded_bytes();
        line.split(|byte| *byte == 0).any(|word| word == data)
    }
}

/// SHA-256 of the server's own certificate, the first in the chain.
fn fingerprint(chain: &Path) -> anyhow::Result<String> {
    let own = CertificateDer::from_pem_file(chain);
    let own = own.map_err(|reason| {
        anyhow::anyhow!("cannot read the certificate {}: {reason}", chain.display())
    })?;
    Ok(hex::encode(Sha256::digest(&own)))
}

fn signal(pid: Option<u32>, signal: Signal) {
    if let Some(pid) = pid.and_then(|pid| i32::try_from(pid).ok()) {
        // The process may have ended already.
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|path_entry| path_entry.is_file())
}
