//! Pins a plugin: the version that it reports, and the digest of its executable.
use std::path::Path;

use app_config::tree::PluginPin;
use sha2::{Digest, Sha256};

use crate::{
    failure::Failure,
    plugins::describe::{describe, failure},
};

/// Calls `describe` of the executable. Returns its name, version and digest. Fails if it reports
/// another name than `name`.
pub(crate) async fn pin(name: &str, path: &Path) -> Result<PluginPin, Failure> {
    let bytes = tokio::fs::read(path).await.map_err(|e| failure(path, e))?;
    let digest = <[u8; 32]>::from(Sha256::digest(&bytes)).into();
    let described = describe(path).await?;
    if described.name != name {
        let actual = described.name;
        let reason = format!("its name is {actual}, not {name}; pass --plugin {actual}=PATH");
        return Err(failure(path, reason));
    }
    Ok(PluginPin { name: described.name, version: described.version, digest })
}
