//! Selects and verifies the executable of a plugin.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use domain::digest::Digest;
use oci_layout::Hasher;
use schemas::plugin::artifact::{EXECUTABLE_LIMIT, PluginStatement};

use super::published;
use crate::plugins::{
    contract::{PluginError, Sink},
    plugin::{Halt, IoContext, Work},
};

/// Copies the plugin into the work directory: the published artifact of the manifest, or the
/// executable in the plugin directory. Returns the path of the copy if its digest matches, and the
/// statement of the publisher of a published plugin.
pub(super) async fn verified_copy(
    work: &Work<'_>,
    sink: &mut dyn Sink,
) -> Result<(PathBuf, Option<PluginStatement>), Halt> {
    let plugin = &work.manifest.plugin;
    let name = &plugin.name;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if name.is_empty() || !name.bytes().all(plain) {
        return Err(PluginError::Refused(format!(
            "cannot use the plugin {name:?}: the name is not valid; use letters, digits, `-` and `_`"
        ))
        .into());
    }
    if plugin.artifact.is_some() && plugin.digest.is_some() {
        return Err(PluginError::Refused(format!(
            "cannot use the plugin {name}: the manifest names both a published plugin and the digest of an installed \
            executable; the vendor must name one of them"
        ))
        .into());
    }
    let file = format!("stead-plugin-{name}");
    let path = work.job.work_dir.join(&file);
    if let Some(artifact) = &plugin.artifact {
        let published = published::executable(work, artifact, sink).await?;
        copy(published.file, &file, &published.digest, &path)?;
        return Ok((path, Some(published.statement)));
    }
    let Some(expected) = &plugin.digest else {
        return Err(PluginError::Refused(format!(
            "cannot use the plugin {name}: it is not built into this runner, and the manifest names no published plugin \
            and no digest of an executable; publish the plugin with `stead plugins push` and sync the app again"
        ))
        .into());
    };
    let installed = work.job.plugin_dir.join(&file);
    let from = match File::open(&installed) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(PluginError::ToolMissing(format!(
                "cannot use the plugin {name}: it is not installed on this runner; install {file} {} as {}",
                plugin.version,
                installed.display()
            ))
            .into());
        }
        from => from.doing(|| format!("cannot read {}", installed.display()))?,
    };
    copy(from, &installed.display().to_string(), expected, &path)?;
    Ok((path, None))
}

/// Copies an executable while computing its digest.
fn copy(mut from: File, name: &str, expected: &Digest, path: &Path) -> Result<(), PluginError> {
    let doing = || format!("cannot copy {name}");
    let mut to = fs::OpenOptions::new();
    let mut to = to.write(true).create_new(true).mode(0o500).open(path).doing(doing)?;
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer).doing(doing)?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        if hasher.length() > EXECUTABLE_LIMIT {
            let refusal = format!(
                "cannot use {name}: it is larger than {EXECUTABLE_LIMIT} bytes; install a smaller executable"
            );
            return Err(PluginError::Refused(refusal));
        }
        to.write_all(&buffer[..read]).doing(doing)?;
    }
    let found = hasher.finish();
    if found != *expected {
        let refusal = format!(
            "cannot use {name}: its digest is {found}, but the manifest requires {expected}; install the required version of the plugin"
        );
        return Err(PluginError::Refused(refusal));
    }
    Ok(())
}
