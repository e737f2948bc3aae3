//! Seed of the install, from which the keys of the install are derived.
//!
//! `keys/install` contains the seed in hexadecimal and the generation of its keys. The first agent
//! creates the file and reports the public keys to the server. The seed belongs to the install and
//! outlives agents: without it, data that was encrypted to the install is lost.
use std::{fs, io};

use ed25519_dalek::SigningKey;
use install_keys::{Fingerprint, InstallKeys, Of, Seed};
use schemas::runner::{InstallPublicKeys, sign_install_keys};
use zeroize::{Zeroize as _, Zeroizing};

use crate::{
    data::{self, Data},
    enrol::Identity,
    host,
};

const FILE: &str = "keys/install";
/// Encryption key of earlier agents, which was never used.
const FORMER: &str = "keys/sealing";

/// Opens the keys of the install. Creates them at the first start, and for a data directory of an
/// earlier agent.
///
/// # Errors
/// If the file of an enrolled runner is missing: new keys could not decrypt the install's data.
pub fn open_or_create(data: &Data, is_enrolled: bool) -> io::Result<InstallKeys> {
    let former = data.path(FORMER);
    let keys = match open(data)? {
        Some(keys) => keys,
        None if is_enrolled && !former.try_exists()? => {
            return Err(io::Error::other(format!(
                "cannot open the keys of the install: {} does not exist; restore it from a backup",
                data.path(FILE).display()
            )));
        }
        None => create(data)?,
    };
    // The new keys are on disk, so the former key is no longer needed.
    data::remove(&former)?;
    Ok(keys)
}

/// Opens the keys of the install, if this directory has them. From now on, no process of the same user
/// can read the memory of this one: jobs run as this user.
pub fn open(data: &Data) -> io::Result<Option<InstallKeys>> {
    host::make_undumpable();
    let path = data.path(FILE);
    let mut text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let keys = parse(text.trim());
    text.zeroize();
    keys.map(Some).ok_or_else(|| {
        let path = path.display();
        io::Error::other(format!(
            "cannot read {path}: the file is not a seed; restore it from a backup"
        ))
    })
}

fn parse(text: &str) -> Option<InstallKeys> {
    let (digits, generation) = text.split_once(' ')?;
    let generation = generation.parse().ok().filter(|generation| *generation > 0)?;
    let mut seed = Zeroizing::new([0; 32]);
    hex::decode_to_slice(digits, seed.as_mut()).ok()?;
    Some(InstallKeys::new(&Seed::from_bytes(&seed), generation))
}

fn create(data: &Data) -> io::Result<InstallKeys> {
    const FIRST: u32 = 1;
    let keys = InstallKeys::new(&Seed::generate(&mut install_keys::os_rng()), FIRST);
    store(data, &keys)?;
    Ok(keys)
}

/// Stores the seed with the generation of its keys.
pub(crate) fn store(data: &Data, keys: &InstallKeys) -> io::Result<()> {
    let digits = Zeroizing::new(hex::encode(keys.seed().expose()));
    let line = Zeroizing::new(format!("{} {}", *digits, keys.generation()));
    data::replace(&data.path(FILE), line.as_bytes())
}

/// Returns the public keys with a signature of the identity key, for the server.
pub fn signed(keys: &InstallKeys, identity: &SigningKey) -> InstallPublicKeys {
    let public = keys.public();
    let (encryption, signing) = (public.encryption_hex(), public.signing_hex());
    sign_install_keys(public.generation(), encryption, signing, identity)
}

/// Returns the fingerprint of the install's public keys. Returns `None` for a build runner.
pub fn fingerprint(keys: &InstallKeys, identity: &Identity) -> Option<Fingerprint> {
    let of = Of { log_id: &identity.log_id, install: identity.install? };
    Some(keys.public().fingerprint(&of))
}

#[cfg(test)]
mod tests {
    use schemas::runner::install_keys_are_signed;

    use super::*;

    #[test]
    fn other_processes_cannot_read_the_memory_with_the_seed() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        assert!(open(&data).unwrap().is_none());
        assert!(!nix::sys::prctl::get_dumpable().unwrap());
    }

    fn directory() -> (tempfile::TempDir, Data) {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(dir.path()).unwrap();
        (dir, data)
    }

    #[test]
    fn keys_are_created_once_and_readable_by_the_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let (_dir, data) = directory();
        assert!(open(&data).unwrap().is_none());
        let first = open_or_create(&data, false).unwrap();
        let again = open_or_create(&data, true).unwrap();
        assert_eq!((first.public(), first.generation()), (again.public(), 1));
        let mode = fs::metadata(data.path(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let (_dir, other) = directory();
        assert_ne!(open_or_create(&other, false).unwrap().public(), first.public());
    }

    #[test]
    fn a_directory_of_an_earlier_agent_gets_new_keys() {
        let (_dir, data) = directory();
        fs::write(data.path(FORMER), "11".repeat(32)).unwrap();
        let keys = open_or_create(&data, true).unwrap();
        assert!(!data.path(FORMER).exists());
        assert_eq!(open_or_create(&data, true).unwrap().public(), keys.public());
        // The agent was killed between the creation and the removal.
        fs::write(data.path(FORMER), "11".repeat(32)).unwrap();
        assert_eq!(open_or_create(&data, true).unwrap().public(), keys.public());
        assert!(!data.path(FORMER).exists());
    }

    #[test]
    fn lost_or_broken_keys_of_an_enrolled_runner_are_not_replaced() {
        let (_dir, data) = directory();
        let error = open_or_create(&data, true).unwrap_err().to_string();
        assert!(error.ends_with("does not exist; restore it from a backup"), "{error}");
        let seed = "11".repeat(32);
        for broken in ["", &seed, &format!("{seed} 0"), &format!("{seed} x"), "short 1"] {
            fs::write(data.path(FILE), broken).unwrap();
            let error = open_or_create(&data, false).unwrap_err().to_string();
            assert!(error.contains("the file is not a seed"), "{broken:?}: {error}");
        }
    }

    #[test]
    fn the_identity_key_signs_the_public_keys() {
        let (_dir, data) = directory();
        let keys = open_or_create(&data, false).unwrap();
        let identity = SigningKey::from_bytes(&[3; 32]);
        let signed = signed(&keys, &identity);
        assert!(install_keys_are_signed(
            &signed,
            &hex::encode(identity.verifying_key().as_bytes())
        ));
        assert_eq!(signed.encryption_key, keys.public().encryption_hex());
    }
}
