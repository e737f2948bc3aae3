//! Redacts values that are created in a job. A script registers a value before using it, and the
//! runner redacts the value from then on.
//!
//! ```sh
//! password=$(fetch-password)
//! printf '%s' "$password" | "$STEAD_RUNNER" redact
//! ```
//!
//! `redact` fails closed. If a value cannot be registered, the command fails and the shim withholds
//! the rest of the job's output. Otherwise a script could continue and print the value. `redact`
//! connects before it reads the value. If there is no value, it reports that over the connection. A
//! connection that ends without a value counts as a failure. If `redact` fails, it also removes a
//! file next to the socket. Without that file the shim shows no line. Removing a file needs neither
//! disk space nor a file descriptor.
//!
//! On the connection: the length of the value in four bytes, big-endian, and the value. The
//! response is `ok` or `no`.
use std::{
    env,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    net::Shutdown,
    os::{fd::AsRawFd as _, unix::net::UnixStream},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use nix::unistd::{AccessFlags, access};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream as Connection},
    time::{sleep, timeout},
};
use zeroize::Zeroizing;

use super::{recorder::Recorder, redact::MIN_SECRET_BYTES};
use crate::{data, data::JobDir, tasks};

/// Environment variable with the path of the socket.
pub const SOCKET: &str = "STEAD_REDACT_SOCKET";
/// Largest value in bytes.
const MAX_VALUE_BYTES: usize = 64 * 1024;
const IO_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a connection that could not be accepted.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Extension of the file that exists as long as every value was registered.
const COMPLETE: &str = "complete";
/// Reserved length, which reports that the script has no value to register.
const NO_VALUE: u32 = u32::MAX;

/// Checks whether every value was registered so far.
#[derive(Debug, Clone)]
pub struct Guard {
    complete: PathBuf,
    program: PathBuf,
}

impl Guard {
    /// Returns whether the job's output may be shown: every value was registered, and scripts can
    /// still call `redact`.
    pub fn may_show(&self) -> bool {
        // Detects a filesystem that was remounted with `noexec`, too.
        self.complete.exists() && access(&self.program, AccessFlags::X_OK).is_ok()
    }
}

/// Listens for values on the job's socket until the shim ends. Scripts call `program` to register a
/// value.
pub fn listen(dir: &JobDir, program: PathBuf, recorder: &Recorder) -> io::Result<PathBuf> {
    let path = dir.redact();
    data::directory(&dir.redact_dir())?;
    let (_dir, address) = short_path(&path)?;
    let listener = UnixListener::bind(address)?;
    let complete = path.with_extension(COMPLETE);
    data::fresh(&complete)?;
    recorder.writer().set_guard(Guard { complete, program });
    let recorder = recorder.clone();
    tasks::detach("redact socket", async move {
        loop {
            match listener.accept().await {
                Ok((connection, _)) => {
                    let recorder = recorder.clone();
                    tasks::detach("redact", async move { serve(connection, &recorder).await });
                }
                // The failed connection may belong to a script that registers a value.
                Err(_) => {
                    recorder.writer().withhold();
                    sleep(ACCEPT_RETRY_PAUSE).await;
                }
            }
        }
    });
    Ok(path)
}

async fn serve(mut connection: Connection, recorder: &Recorder) {
    let received = receive_value(&mut connection, recorder).await;
    if received.is_err() {
        recorder.writer().withhold();
    }
    // A script that does not receive the response withholds the output itself.
    let _gone = connection.write_all(if received.is_ok() { b"ok" } else { b"no" }).await;
}

async fn receive_value(connection: &mut Connection, recorder: &Recorder) -> io::Result<()> {
    // No timeout: the script may still be waiting for the value.
    let length = usize::try_from(connection.read_u32().await?).unwrap_or(usize::MAX);
    if length > MAX_VALUE_BYTES {
        return Err(io::Error::other("the script has no value to register"));
    }
    let mut bytes = Zeroizing::new(vec![0; length]);
    timeout(IO_TIMEOUT, connection.read_exact(&mut bytes)).await??;
    let value = str::from_utf8(&bytes).map_err(io::Error::other)?;
    check(value).map_err(io::Error::other)?;
    let mut writer = recorder.writer();
    writer.add_secret(Zeroizing::new(value.to_owned()));
    // A newline at the end may come from the pipe. Encoded forms of the value then lack it.
    writer.add_secret(Zeroizing::new(value.trim().to_owned()));
    Ok(())
}

/// Rejects a value that is too short or too long for redaction.
fn check(value: &str) -> Result<(), String> {
    let (length, least) = (value.trim().len(), MIN_SECRET_BYTES);
    if length < least {
        return Err(format!(
            "the value has {length} bytes, but redaction requires at least {least}"
        ));
    }
    if value.len() > MAX_VALUE_BYTES {
        return Err(format!(
            "the value has more than {MAX_VALUE_BYTES} bytes; register its lines one by one"
        ));
    }
    Ok(())
}

/// Registers the value on standard input for redaction. If this fails, the job's output is withheld
/// from then on.
pub fn register() -> anyhow::Result<()> {
    let socket = env::var_os(SOCKET).map(PathBuf::from).context(
        "cannot redact: STEAD_REDACT_SOCKET is not set; run this command in a script of a job",
    )?;
    let sent = send_value(&socket);
    if sent.is_err() {
        withhold();
    }
    sent.context("cannot redact the value: the rest of the job's output is withheld")
}

/// Withholds the rest of the job's output. Does nothing outside a job.
pub fn withhold() {
    if let Some(socket) = env::var_os(SOCKET).map(PathBuf::from) {
        // The file no longer exists if the output is withheld already.
        let _gone = fs::remove_file(socket.with_extension(COMPLETE));
    }
}

fn send_value(socket: &Path) -> anyhow::Result<()> {
    // Connect first, so that the shim notices if this process is killed before it has sent the
    // value.
    let (_dir, address) = short_path(socket)?;
    let mut stream = UnixStream::connect(address).context("cannot connect to the job's shim")?;
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    let value = read_value();
    match &value {
        Ok(value) => {
            stream.write_all(&u32::try_from(value.len())?.to_be_bytes())?;
            stream.write_all(value.as_bytes())?;
        }
        Err(_) => stream.write_all(&NO_VALUE.to_be_bytes())?,
    }
    stream.shutdown(Shutdown::Write)?;
    let mut response = String::new();
    let read = stream.read_to_string(&mut response);
    value?;
    read.context("the job's shim did not respond")?;
    if response == "ok" { Ok(()) } else { bail!("the job's shim rejected the value") }
}

fn read_value() -> anyhow::Result<Zeroizing<String>> {
    let mut value = Zeroizing::new(String::new());
    io::stdin().take(MAX_VALUE_BYTES as u64 + 1).read_to_string(&mut value)?;
    check(&value).map_err(anyhow::Error::msg)?;
    Ok(value)
}

/// Returns a path to the same file that fits a socket's address (107 bytes), and the open directory
/// that keeps it valid.
fn short_path(path: &Path) -> io::Result<(File, PathBuf)> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let dir = File::open(parent)?;
    let name = path.file_name().unwrap_or_default();
    let short = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name);
    Ok((dir, short))
}

/// Removes the socket and the file next to it.
pub fn remove(dir: &JobDir) {
    let _best_effort = fs::remove_dir_all(dir.redact_dir());
}
