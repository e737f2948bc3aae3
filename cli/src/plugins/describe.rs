//! Calls `describe` of a plugin executable on this host.
use std::{path::Path, process::Stdio, time::Duration};

use schemas::plugin::{Call, Described, MESSAGE_LIMIT, Message, PROTOCOLS, Request};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{ChildStdout, Command},
};

use crate::failure::Failure;

/// Maximum output up to the response, in bytes.
const OUTPUT_LIMIT: u64 = MESSAGE_LIMIT as u64;
const TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the failure of a command that uses this executable.
pub(crate) fn failure(path: &Path, reason: impl std::fmt::Display) -> Failure {
    Failure::Usage(format!("cannot use the plugin {}: {reason}", path.display()))
}

/// Returns the description of an executable.
pub(crate) async fn describe(path: &Path) -> Result<Described, Failure> {
    let response = call_describe(path, PROTOCOLS[0], &PROTOCOLS).await?;
    response.ok_or_else(|| {
        failure(path, "it returned no result for `describe`; check that it is a Stead plugin")
    })
}

/// Returns the protocol versions that an executable supports.
pub(crate) async fn protocols(path: &Path) -> Result<Vec<u32>, Failure> {
    let mut supported = Vec::new();
    for version in PROTOCOLS {
        let described = call_describe(path, version, &[version]).await?;
        if described.is_some_and(|described| described.protocol == version) {
            supported.push(version);
        }
    }
    if supported.is_empty() {
        let known = PROTOCOLS.map(|version| version.to_string()).join(" and ");
        return Err(failure(
            path,
            format!(
                "it supports none of the protocol versions {known}; build it for one of these versions"
            ),
        ));
    }
    Ok(supported)
}

/// Returns the response to `describe`. `None` if the plugin reports an error or exits.
async fn call_describe(
    path: &Path,
    protocol: u32,
    protocols: &[u32],
) -> Result<Option<Described>, Failure> {
    let path = path.canonicalize().map_err(|e| failure(path, e))?;
    // The executable gets no credentials of this process.
    let mut child = Command::new(&path)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| failure(&path, e))?;
    let (Some(mut to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(failure(&path, "cannot open its standard input and output"));
    };
    let request =
        Request { id: 1, call: Call::Describe { protocol, protocols: protocols.to_vec() } };
    let line = format!("{}\n", serde_json::to_string(&request)?);
    // A plugin may respond or exit without reading its input.
    let _unread = to.write_all(line.as_bytes()).await;
    let response = tokio::time::timeout(TIMEOUT, described(from)).await;
    response.map_err(|_| failure(&path, "no response to `describe` within 10 s"))
}

async fn described(from: ChildStdout) -> Option<Described> {
    let mut lines = BufReader::new(from.take(OUTPUT_LIMIT)).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match serde_json::from_str(&line).ok()? {
            Message::Result { value, .. } => return serde_json::from_value(value).ok(),
            Message::Error { .. } => return None,
            Message::Log { .. } | Message::Progress { .. } => {}
        }
    }
    None
}
