//! Values that are born in a job: a script hands them in before it uses them, and they are redacted from then on.
//!
//! ```sh
//! password=$(fetch-password)
//! printf '%s' "$password" | "$STEAD_RUNNER" redact
//! ```
use std::{
    env,
    io::{self, Read as _, Write as _},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context as _, bail};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream as Connection},
    time::timeout,
};
use zeroize::Zeroizing;

use super::recorder::Recorder;
use crate::data::JobDir;

/// Where a child finds the socket.
pub const SOCKET: &str = "STEAD_REDACT_SOCKET";
/// Longer is no secret.
const LONGEST: u64 = 64 * 1024;
const PATIENCE: Duration = Duration::from_secs(5);

/// Listen for values until the shim ends.
pub fn listen(dir: &JobDir, recorder: &Recorder) -> io::Result<PathBuf> {
    let path = dir.redact();
    let listener = UnixListener::bind(&path)?;
    let recorder = recorder.clone();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            // One that does not finish only loses its own value.
            let _late = timeout(PATIENCE, take(connection, &recorder)).await;
        }
    });
    Ok(path)
}

async fn take(mut connection: Connection, recorder: &Recorder) -> io::Result<()> {
    let mut value = Zeroizing::new(String::new());
    (&mut connection).take(LONGEST).read_to_string(&mut value).await?;
    recorder.pen().hide(value);
    connection.write_all(b"ok").await
}

/// Hand in what comes on standard input. When this returns, the value is redacted.
pub fn hand_in() -> anyhow::Result<()> {
    let path = env::var_os(SOCKET).context("this is only for scripts of a job")?;
    let mut value = Zeroizing::new(String::new());
    io::stdin().take(LONGEST).read_to_string(&mut value)?;
    let mut stream = UnixStream::connect(path).context("the job's shim does not listen")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(value.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer == "ok" { Ok(()) } else { bail!("the job's shim did not take the value") }
}
