//! Network of one job: a network namespace, with the network of the host through pasta.
//!
//! A service of the shim that a job's programs use on loopback calls [`JobNetwork::listen`]. The
//! returned listener exists only in the network of that job, so that no other job reaches it.
use std::{
    ffi::OsString,
    io::{self, IoSliceMut, Read as _, Write as _},
    mem::MaybeUninit,
    net::{Ipv4Addr, TcpListener},
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use nix::unistd::{getgid, getuid};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::{
    io::AsyncReadExt as _,
    process::{Child, Command},
};

use super::holder::{BLOCK, LISTEN, PROBE};
use crate::{processes, tasks};

/// Address of the name server inside. pasta forwards its requests to a name server of the host.
pub(super) const NAME_SERVER: &str = "169.254.1.1";
/// Name of the interface inside. Some kernels add interfaces of their own to each network.
pub(super) const INTERFACE: &str = "stead0";
/// Timeout of each step of the start.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between checks whether pasta is ready.
const INTERVAL: Duration = Duration::from_millis(5);
/// Longest text of an error of pasta, in bytes.
const LONGEST_ERROR: u64 = 64 * 1024;

/// Network that the programs of a job use.
#[derive(Debug)]
pub struct JobNetwork(Option<Namespace>);

/// Network namespace of a job.
#[derive(Debug)]
struct Namespace {
    holder: Child,
    pid: u32,
    control: Mutex<UnixStream>,
    /// Process of pasta, which ends with this process.
    pasta: Option<Child>,
}

impl JobNetwork {
    /// Returns the network of the host.
    pub fn of_host() -> Self {
        JobNetwork(None)
    }

    /// Creates a network namespace with these programs. `loopback` are ports on the loopback interface
    /// of the host that stay reachable at the same address.
    pub async fn create(
        (runner, pasta): (&Path, &Path),
        loopback: &[u16],
        env: &[(&str, String)],
    ) -> anyhow::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(TIMEOUT))?;
        ours.set_write_timeout(Some(TIMEOUT))?;
        let mut command = Command::new(runner);
        command
            .arg("sandbox-network")
            .env_clear()
            .envs(env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true);
        let holder = processes::spawn(&mut command).context("cannot start the holder")?;
        // The command keeps the other end of the socket open.
        drop(command);
        let pid = holder.id().context("the holder ended immediately")?;
        let mut namespace = Namespace { holder, pid, control: Mutex::new(ours), pasta: None };
        let started = namespace.connect((runner, pasta), loopback, env).await;
        if let Err(error) = started {
            namespace.stop().await;
            return Err(error);
        }
        Ok(JobNetwork(Some(namespace)))
    }

    /// Returns the process that holds the network, unless it is the host's.
    pub fn holder(&self) -> Option<u32> {
        self.0.as_ref().map(|namespace| namespace.pid)
    }

    /// Listens on a free loopback port that the programs of this job can connect to.
    pub fn listen(&self) -> io::Result<TcpListener> {
        match &self.0 {
            None => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)),
            Some(namespace) => namespace.listen(),
        }
    }

    /// Removes the network. Programs that still run lose it.
    pub async fn stop(self) {
        if let Some(namespace) = self.0 {
            namespace.stop().await;
        }
    }
}

impl Namespace {
    async fn connect(
        &mut self,
        (runner, pasta): (&Path, &Path),
        loopback: &[u16],
        env: &[(&str, String)],
    ) -> anyhow::Result<()> {
        read_response(&mut self.locked())?;
        let ports: Vec<_> = loopback.iter().map(u16::to_string).collect();
        let ports = if ports.is_empty() { "none".into() } else { ports.join(",") };
        let mut command = Command::new(runner);
        command
            .args(["sandbox-connect", "--parent", &std::process::id().to_string(), "--"])
            .arg(pasta)
            .args([
                "--foreground",
                "--quiet",
                "--config-net",
                "--no-map-gw",
                "--ns-ifname",
                INTERFACE,
            ])
            .args(["--dns-forward", NAME_SERVER])
            .args(["-t", "none", "-u", "none", "-U", "none", "-T", &ports])
            // As root, pasta would become another user, which cannot join the namespaces.
            .arg("--runas")
            .arg(format!("{}:{}", getuid(), getgid()))
            .args(["--userns", &format!("/proc/{}/ns/user", self.pid)])
            .args(["--netns", &format!("/proc/{}/ns/net", self.pid)])
            .env_clear()
            .envs(env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let child = processes::spawn(&mut command).context("cannot start pasta")?;
        self.pasta = Some(child);
        self.ready().await?;
        self.request(BLOCK, 0)
    }

    /// Waits until pasta answers in the network. A file in which pasta writes its process id would not
    /// suffice: the AppArmor profile of some distributions lets pasta write only a few directories.
    async fn ready(&mut self) -> anyhow::Result<()> {
        let mut pasta = self.pasta.take().context("pasta was not started")?;
        let mut errors = pasta.stderr.take().context("pasta has no standard error")?;
        let began = Instant::now();
        let answers = loop {
            if pasta.try_wait()?.is_some() {
                break Ok(false);
            }
            match self.request(PROBE, 0) {
                Ok(()) => break Ok(true),
                Err(error) if began.elapsed() > TIMEOUT => {
                    break Err(error.context("pasta did not start in time"));
                }
                Err(_) => tokio::time::sleep(INTERVAL).await,
            }
        };
        self.pasta = Some(pasta);
        if answers? {
            // pasta would end if it could not write.
            tasks::detach("errors of pasta", async move {
                let _ended = tokio::io::copy(&mut errors, &mut tokio::io::sink()).await;
            });
            return Ok(());
        }
        let mut text = Vec::new();
        errors.take(LONGEST_ERROR).read_to_end(&mut text).await?;
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().map(str::trim).rfind(|line| is_message(line));
        bail!("pasta: {}", line.unwrap_or("it failed without a message"))
    }

    fn request(&self, kind: u8, port: u16) -> anyhow::Result<()> {
        let mut control = self.locked();
        write_request(&mut control, kind, port)?;
        read_response(&mut control)
    }

    fn listen(&self) -> io::Result<TcpListener> {
        let mut control = self.locked();
        write_request(&mut control, LISTEN, 0)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut first = [1];
        let received = recvmsg(
            &*control,
            &mut [IoSliceMut::new(&mut first)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        if received.bytes == 1 && first[0] == 0 {
            let file = ancillary.drain().find_map(|message| {
                if let RecvAncillaryMessage::ScmRights(mut files) = message {
                    files.next()
                } else {
                    None
                }
            });
            return file.map(TcpListener::from).ok_or_else(|| io::Error::other("no listener came"));
        }
        Err(io::Error::other(read_error(&mut control)?))
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, UnixStream> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn stop(mut self) {
        // The end of pasta removes its interface, which takes longest.
        if let Some(pasta) = &mut self.pasta {
            let _ended_already = pasta.start_kill();
        }
        let _ended_already = self.holder.kill().await;
        if let Some(pasta) = &mut self.pasta {
            let _ended_already = pasta.wait().await;
        }
    }
}

/// pasta prints its configuration, and errors of a system log that is missing.
fn is_message(line: &str) -> bool {
    !line.is_empty() && !line.starts_with("Failed to send")
}

fn write_request(control: &mut UnixStream, kind: u8, port: u16) -> io::Result<()> {
    let [high, low] = port.to_be_bytes();
    control.write_all(&[kind, high, low])
}

fn read_response(control: &mut UnixStream) -> anyhow::Result<()> {
    let mut first = [0];
    control.read_exact(&mut first).context("the holder of the network ended")?;
    if first[0] == 0 {
        return Ok(());
    }
    bail!(read_error(control)?)
}

fn read_error(control: &mut UnixStream) -> io::Result<String> {
    let mut length = [0; 2];
    control.read_exact(&mut length)?;
    let mut text = vec![0; usize::from(u16::from_be_bytes(length))];
    control.read_exact(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Returns the configuration of the resolver inside: the host's, with the name server of pasta.
pub(crate) fn resolver(host: &str) -> String {
    let kept = |line: &&str| line.starts_with("search ") || line.starts_with("options ");
    let lines: String = host.lines().filter(kept).map(|line| format!("{line}\n")).collect();
    format!("nameserver {NAME_SERVER}\n{lines}")
}

/// Searches an executable in the directories of a search path.
pub(super) fn find(path: &OsString, name: &str) -> Option<PathBuf> {
    std::env::split_paths(path).map(|dir| dir.join(name)).find(|file| {
        file.is_absolute()
            && nix::unistd::access(file, nix::unistd::AccessFlags::X_OK).is_ok()
            && file.is_file()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resolver_asks_only_pasta() {
        let host = "# made by x\nnameserver 127.0.0.53\noptions edns0\nsearch example.com\n";
        let expected = "nameserver 169.254.1.1\noptions edns0\nsearch example.com\n";
        assert_eq!(resolver(host), expected);
    }
}
