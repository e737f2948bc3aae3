//! Secret key of the runner, from which the salts of details are computed.

use std::{fs, io::Write as _, path::Path};

use zeroize::Zeroizing;

use crate::plugins::{contract::PluginError, plugin::IoContext};

/// Name of the key file in the directory of the plans.
const FILE: &str = "salt-key";

/// Returns the key, and creates it the first time.
pub(super) fn key(plans: &Path) -> Result<Zeroizing<[u8; 32]>, PluginError> {
    let path = plans.join(FILE);
    let context = || format!("cannot use the key {}", path.display());
    if !path.exists() {
        // `tempfile` creates files with mode 0600.
        let mut new = tempfile::NamedTempFile::new_in(plans).doing(context)?;
        let key = Zeroizing::new(rand::random::<[u8; 32]>());
        new.write_all(&*key).and_then(|()| new.as_file().sync_all()).doing(context)?;
        // Another job may have created the key meanwhile.
        let _created_by_another_job = new.persist_noclobber(&path);
    }
    let bytes = Zeroizing::new(fs::read(&path).doing(context)?);
    <[u8; 32]>::try_from(bytes.as_slice()).map(Zeroizing::new).map_err(|_| {
        let path = path.display();
        PluginError::PluginFailed(format!(
            "cannot plan: the key {path} does not have 32 bytes; delete it"
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_key_is_created_once_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let first = key(dir.path()).unwrap();
        assert_eq!(first, key(dir.path()).unwrap());
        let path = dir.path().join(FILE);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&path, "short").unwrap();
        assert!(key(dir.path()).unwrap_err().to_string().contains("delete it"));
    }
}
