//! Selects and verifies the executable of a plugin.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
};

use oci_layout::Hasher;

use crate::plugins::{
    contract::PluginError,
    plugin::{IoContext, Work},
};

/// Largest plugin executable in bytes.
const LIMIT: u64 = 512 << 20;

/// Copies the plugin into the work directory. Returns the path of the copy if its digest matches
/// the manifest.
pub(super) fn verified_copy(work: &Work<'_>) -> Result<PathBuf, PluginError> {
    let plugin = &work.manifest.plugin;
    let name = &plugin.name;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if name.is_empty() || !name.bytes().all(plain) {
        return Err(PluginError::Refused(format!(
            "cannot use the plugin {name:?}: the name is not valid; use letters, digits, `-` and `_`"
        )));
    }
    let Some(expected) = &plugin.digest else {
        return Err(PluginError::Refused(format!(
            "cannot use the plugin {name}: it is not built into this runner, and the manifest has no digest of an executable; \
            sync the app with --plugin {name}=PATH"
        )));
    };
    let file = format!("stead-plugin-{name}");
    let installed = work.job.plugin_dir.join(&file);
    let mut from = match File::open(&installed) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(PluginError::ToolMissing(format!(
                "cannot use the plugin {name}: it is not installed on this runner; install {file} {} as {}",
                plugin.version,
                installed.display()
            )));
        }
        from => from.doing(|| format!("cannot read {}", installed.display()))?,
    };
    let copy = || format!("cannot copy {}", installed.display());
    let path = work.job.work_dir.join(&file);
    let mut to = fs::OpenOptions::new();
    let mut to = to.write(true).create_new(true).mode(0o500).open(&path).doing(copy)?;
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer).doing(copy)?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        if hasher.length() > LIMIT {
            let refusal = format!(
                "cannot use {}: it is larger than {LIMIT} bytes; install a smaller executable",
                installed.display()
            );
            return Err(PluginError::Refused(refusal));
        }
        to.write_all(&buffer[..read]).doing(copy)?;
    }
    let found = hasher.finish();
    if found != *expected {
        let refusal = format!(
            "cannot use {file}: its digest is {found}, but the manifest requires {expected}; install the required version of the plugin"
        );
        return Err(PluginError::Refused(refusal));
    }
    Ok(path)
}
