//! Pins a plugin: the version that it reports, and the digest of its executable.
use std::{path::Path, process::Stdio, time::Duration};

use app_config::tree::PluginPin;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{ChildStdout, Command},
};

use crate::failure::Failure;

const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Calls `describe` of the executable. Returns its name, version and digest. Fails if it reports
/// another name than `name`.
pub(crate) async fn pin(name: &str, path: &Path) -> Result<PluginPin, Failure> {
    let failure = |reason: String| {
        Failure::Usage(format!("cannot use the plugin {}: {reason}", path.display()))
    };
    let bytes = tokio::fs::read(path).await.map_err(|e| failure(e.to_string()))?;
    let digest = format!("sha256:{}", hex::encode(Sha256::digest(&bytes)));
    let digest = digest.parse().map_err(|e| failure(format!("{e}")))?;
    let path = path.canonicalize().map_err(|e| failure(e.to_string()))?;
    let mut child = Command::new(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| failure(e.to_string()))?;
    let (Some(mut to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(failure("its pipes are missing".into()));
    };
    let request = format!("{}\n", json!({"id": 1, "call": "describe", "protocol": 1}));
    to.write_all(request.as_bytes()).await.map_err(|e| failure(e.to_string()))?;
    let description = tokio::time::timeout(DESCRIBE_TIMEOUT, described(from)).await;
    let description =
        description.map_err(|_| failure("no response to `describe` within 10 s".into()))?;
    let description = description.ok_or_else(|| failure("no result of `describe`".into()))?;
    let string = |key: &str| description.get(key).and_then(Value::as_str).map(str::to_owned);
    let (Some(actual), Some(version)) = (string("name"), string("version")) else {
        return Err(failure("its response has no name or no version".into()));
    };
    if actual != name {
        return Err(failure(format!(
            "its name is {actual}, not {name}; pass --plugin {actual}=PATH"
        )));
    }
    Ok(PluginPin { name: actual, version, digest })
}

/// Returns the result of the `describe` call. `None` if the plugin reports an error or ends.
async fn described(from: ChildStdout) -> Option<Value> {
    let mut lines = BufReader::new(from).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let message: Value = serde_json::from_str(&line).ok()?;
        match message.get("type").and_then(Value::as_str) {
            Some("result") => return message.get("value").cloned(),
            Some("error") => return None,
            Some(_) | None => {}
        }
    }
    None
}
