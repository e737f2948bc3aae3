//! Calls of the `helm` executable: never through a shell, with an environment and directories of
//! this job only.

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use stead_plugin_kubernetes::{
    failure::{Failure, IoContext, Outcome},
    rejection::without_value,
};
use tokio::{
    io::AsyncReadExt,
    process::{Child, Command},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::settings::StorageDriver;

/// Largest output of a command in bytes.
const OUTPUT_LIMIT: u64 = 64 << 20;
/// Largest part of an error that becomes a message, in bytes.
const ERROR_LIMIT: u64 = 64 << 10;
/// Time for Helm to record a cancelled release, before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(8);
/// Variable with the file of chart repositories and their credentials, which the runner sets for
/// builds.
pub const REPOSITORY_CONFIG: &str = "HELM_REPOSITORY_CONFIG";
/// Variables that Helm gets from the environment of the job: how it reaches repositories. The runner
/// sets those with credentials only for builds.
const PASSED: [&str; 12] = [
    "PATH",
    "DOCKER_CONFIG",
    "HELM_REGISTRY_CONFIG",
    REPOSITORY_CONFIG,
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// Helm with the directories of one job.
pub struct Helm {
    dir: PathBuf,
    kubeconfig: Option<PathBuf>,
    driver: StorageDriver,
}

/// Limits of one command.
#[derive(Clone, Copy)]
pub struct Limits<'l> {
    pub timeout: Duration,
    /// Stops the command.
    pub stop: Option<&'l CancellationToken>,
}

impl Limits<'_> {
    /// Limits of commands that change nothing.
    pub const fn of(timeout: Duration) -> Self {
        Limits { timeout, stop: None }
    }
}

/// Outputs of a command that succeeded.
pub struct Output {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Output {
    /// Lines of standard error: warnings, without values.
    pub fn warnings(&self) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.stderr);
        let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
        lines.take(50).map(without_value).collect()
    }
}

impl Helm {
    /// Creates the directories of Helm below the work directory.
    pub fn new(work_dir: &Path, driver: StorageDriver) -> Outcome<Self> {
        let dir = work_dir.join("helm");
        for part in ["cache", "config", "data"] {
            let part = dir.join(part);
            fs::create_dir_all(&part).context(|| format!("create {}", part.display()))?;
        }
        Ok(Helm { dir, kubeconfig: None, driver })
    }

    /// Connects to the cluster of a checked kubeconfig.
    pub fn with_kubeconfig(mut self, text: &[u8]) -> Outcome<Self> {
        let path = self.dir.join("kubeconfig");
        let write = || {
            let mut options = fs::OpenOptions::new();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o600).open(&path)?;
            file.write_all(text)
        };
        write().context(|| format!("write {}", path.display()))?;
        self.kubeconfig = Some(path);
        Ok(self)
    }

    /// Directory for files of this job.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    /// Helm's own error, without values.
    pub async fn run(&self, args: &[&OsStr], limits: Limits<'_>) -> Outcome<Output> {
        let mut all = args.to_vec();
        let kubeconfig = self.kubeconfig.as_deref().map(Path::as_os_str);
        if let Some(kubeconfig) = kubeconfig {
            all.extend([OsStr::new("--kubeconfig"), kubeconfig]);
        }
        self.run_offline(&all, limits).await
    }

    /// Runs a command that needs no cluster.
    pub async fn run_offline(&self, args: &[&OsStr], limits: Limits<'_>) -> Outcome<Output> {
        let verb = args.first().map(|verb| verb.to_string_lossy()).unwrap_or_default();
        let mut command = Command::new("helm");
        command.args(args).env_clear().stdin(Stdio::null()).kill_on_drop(true);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).current_dir(&self.dir);
        command.envs(PASSED.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))));
        command.env("HOME", &self.dir).env("HELM_DRIVER", self.driver.name());
        for part in ["cache", "config", "data"] {
            let name = format!("HELM_{}_HOME", part.to_uppercase());
            command.env(name, self.dir.join(part));
        }
        command.env("HELM_NO_PLUGINS", "1").env("LANG", "C.UTF-8");
        let child = match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Failure::tool_missing(
                    "helm is not installed: install Helm 3.14 or later, or Helm 4, on the PATH of \
                     the runner",
                ));
            }
            child => child.context(|| "start helm".into())?,
        };
        let ended = Ended::of(child, limits).await.context(|| format!("run helm {verb}"))?;
        match ended {
            Ended::Succeeded(output) if output.stdout.len() as u64 > OUTPUT_LIMIT => {
                Err(Failure::refused(format!(
                    "the output of helm {verb} exceeds {OUTPUT_LIMIT} bytes; split the chart"
                )))
            }
            Ended::Succeeded(output) => Ok(output),
            Ended::Failed(output) => Err(Failure::failed(error_text(&output))),
            Ended::Stopped => Err(Failure::cancelled()),
            Ended::TimedOut => {
                let seconds = limits.timeout.as_secs();
                Err(Failure::failed(format!("helm {verb} did not finish within {seconds} s")))
            }
        }
    }
}

/// End of a command.
enum Ended {
    Succeeded(Output),
    Failed(Output),
    Stopped,
    TimedOut,
}

impl Ended {
    async fn of(mut child: Child, limits: Limits<'_>) -> io::Result<Ended> {
        let pid = child.id();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let reads =
            async { tokio::try_join!(read(stdout, OUTPUT_LIMIT + 1), read(stderr, ERROR_LIMIT)) };
        let finish = async {
            let (stdout, stderr) = reads.await?;
            let status = child.wait().await?;
            let output = Output { stdout, stderr };
            Ok(match status.success() {
                true => Ended::Succeeded(output),
                false => Ended::Failed(output),
            })
        };
        tokio::pin!(finish);
        let deadline = Instant::now() + limits.timeout;
        let stopped = async {
            match limits.stop {
                Some(stop) => stop.cancelled().await,
                None => std::future::pending().await,
            }
        };
        let end = tokio::select! {
            ended = &mut finish => return ended,
            () = stopped => Ended::Stopped,
            () = sleep_until(deadline) => Ended::TimedOut,
        };
        // Helm records the release as failed. Otherwise it would stay pending.
        if let Some(pid) = pid.and_then(|pid| i32::try_from(pid).ok()) {
            let _already_ended = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        tokio::select! {
            _ = &mut finish => {}
            () = sleep(STOP_TIMEOUT) => {}
        }
        Ok(end)
    }
}

/// Reads a pipe to its end, and keeps the first bytes.
async fn read(pipe: Option<impl tokio::io::AsyncRead + Unpin>, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![];
    if let Some(mut pipe) = pipe {
        (&mut pipe).take(limit).read_to_end(&mut bytes).await?;
        tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await?;
    }
    Ok(bytes)
}

/// Returns the message of Helm, without values: the findings of `lint`, and the text from `Error:`
/// on.
fn error_text(output: &Output) -> String {
    let found = String::from_utf8_lossy(&output.stdout);
    let found = found.lines().filter(|line| line.starts_with("[ERROR]")).map(without_value);
    let text = String::from_utf8_lossy(&output.stderr);
    let text = text.trim();
    let from = text.find("Error: ").map_or(text, |at| &text[at + "Error: ".len()..]);
    let lines: Vec<String> = found.chain(from.lines().map(without_value)).take(40).collect();
    match lines.is_empty() {
        true => "helm failed without a message".to_owned(),
        false => format!("helm: {}", lines.join("\n")),
    }
}

/// Returns arguments of one type.
pub fn args<const N: usize>(args: [&str; N]) -> Vec<OsString> {
    args.iter().map(OsString::from).collect()
}

/// Borrows arguments.
pub fn refs(args: &[OsString]) -> Vec<&OsStr> {
    args.iter().map(OsString::as_os_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_no_values() {
        let message = |stdout: &[u8], stderr: &[u8]| {
            error_text(&Output { stdout: stdout.to_vec(), stderr: stderr.to_vec() })
        };
        let text = b"walk.go:74: found symbolic link\nError: INSTALLATION FAILED: x is invalid: \
                     spec.a: Invalid value: \"secret\": must be a number\n";
        assert_eq!(
            message(b"{}", text),
            "helm: INSTALLATION FAILED: x is invalid: spec.a: Invalid value: must be a number"
        );
        assert_eq!(message(b"", b""), "helm failed without a message");
        let findings = message(b"==> Linting a\n[ERROR] a.yaml: x\n", b"Error: 1 chart(s) failed");
        assert_eq!(findings, "helm: [ERROR] a.yaml: x\n1 chart(s) failed");
    }
}
