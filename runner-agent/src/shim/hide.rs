//! Values that are born in a job: a script hands them in before it uses them, and they are redacted from then on.
//!
//! ```sh
//! password=$(fetch-password)
//! printf '%s' "$password" | "$STEAD_RUNNER" redact
//! ```
//!
//! It fails closed. A value that cannot be handed in makes the command end with an error, and the rest of the job's
//! output is withheld, for a script may go on and print it. `redact` and the shim both raise the alarm: a file beside
//! the socket, which the shim looks for before it shows a line.
use std::{
    env,
    fs::File,
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
    time::timeout,
};
use zeroize::Zeroizing;

use super::{recorder::Recorder, redact::SHORTEST};
use crate::{data, data::JobDir};

/// Where a child finds the socket.
pub const SOCKET: &str = "STEAD_REDACT_SOCKET";
/// The largest value.
const LONGEST: usize = 64 * 1024;
const PATIENCE: Duration = Duration::from_secs(5);
/// Extension of the file that says that a value could not be handed in.
const ALARM: &str = "failed";

/// Knows whether every value was handed in so far.
#[derive(Debug, Clone)]
pub struct Guard {
    alarm: PathBuf,
    program: PathBuf,
}

impl Guard {
    /// Whether the job's output may be shown: no value failed, and scripts can still call `redact`.
    pub fn may_show(&self) -> bool {
        // Also where the filesystem was mounted again with `noexec`.
        !self.alarm.exists() && access(&self.program, AccessFlags::X_OK).is_ok()
    }
}

/// Listens for values until the shim ends, at a socket that scripts reach by this program.
pub fn listen(dir: &JobDir, program: PathBuf, recorder: &Recorder) -> io::Result<PathBuf> {
    let path = dir.redact();
    let (_dir, address) = short(&path)?;
    let listener = UnixListener::bind(address)?;
    let alarm = path.with_extension(ALARM);
    recorder.pen().guard(Guard { alarm: alarm.clone(), program });
    let recorder = recorder.clone();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let (recorder, alarm) = (recorder.clone(), alarm.clone());
            tokio::spawn(async move {
                if !matches!(timeout(PATIENCE, take(connection, &recorder)).await, Ok(Ok(()))) {
                    raise(&alarm, &recorder);
                }
            });
        }
    });
    Ok(path)
}

fn raise(alarm: &Path, recorder: &Recorder) {
    // On a disk without a free inode the pen itself remembers.
    let _best_effort = File::create(alarm);
    recorder.pen().withhold();
}

async fn take(mut connection: Connection, recorder: &Recorder) -> io::Result<()> {
    let mut value = Zeroizing::new(String::new());
    (&mut connection).take(LONGEST as u64 + 1).read_to_string(&mut value).await?;
    check(&value).map_err(io::Error::other)?;
    let trimmed = Zeroizing::new(value.trim().to_owned());
    {
        let mut pen = recorder.pen();
        pen.hide(value);
        // A newline at its end is the pipe's: encoded, the value comes without it.
        pen.hide(trimmed);
    }
    connection.write_all(b"ok").await
}

/// What cannot be found in a log is not taken.
fn check(value: &str) -> Result<(), String> {
    let (length, least) = (value.trim().len(), SHORTEST);
    if length < least {
        return Err(format!(
            "the value has {length} bytes, and fewer than {least} are not redacted"
        ));
    }
    if value.len() > LONGEST {
        return Err(format!(
            "the value has more than {LONGEST} bytes; hand in its lines one by one"
        ));
    }
    Ok(())
}

/// Hands in what comes on standard input. When this returns, the value is redacted; if it fails, the job's output is
/// withheld from then on.
pub fn hand_in() -> anyhow::Result<()> {
    let socket =
        env::var_os(SOCKET).map(PathBuf::from).context("this is only for scripts of a job")?;
    let handed_in = send(&socket);
    if handed_in.is_err() {
        // If that fails too, the shim is told by the connection that ended without a value, or is gone.
        let _best_effort = File::create(socket.with_extension(ALARM));
    }
    handed_in.context("cannot redact the value: the rest of the job's output is withheld")
}

fn send(socket: &Path) -> anyhow::Result<()> {
    let mut value = Zeroizing::new(String::new());
    io::stdin().take(LONGEST as u64 + 1).read_to_string(&mut value)?;
    check(&value).map_err(anyhow::Error::msg)?;
    let (_dir, address) = short(socket)?;
    let mut stream = UnixStream::connect(address).context("the job's shim does not listen")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(value.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer == "ok" { Ok(()) } else { bail!("the job's shim did not take the value") }
}

/// The same place by a path that fits a socket's address (107 bytes), and what keeps that path valid.
fn short(path: &Path) -> io::Result<(File, PathBuf)> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let dir = File::open(parent)?;
    let name = path.file_name().unwrap_or_default();
    let short = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name);
    Ok((dir, short))
}

/// Removes the socket and the alarm.
pub fn remove(dir: &JobDir) {
    for path in [dir.redact(), dir.redact().with_extension(ALARM)] {
        let _best_effort = data::remove(&path);
    }
}
