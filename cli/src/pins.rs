//! Pinned public keys of installs. The CLI encrypts data only to a key that a user has pinned,
//! because a server could return the keys of another party.
use std::{collections::BTreeMap, fs, io, path::PathBuf};

use domain::ids::InstallId;
use install_keys::{Fingerprint, Of, PublicKeys};
use schemas::control::installs::Install;
use serde::{Deserialize, Serialize};

use crate::{failure::Failure, settings::Credentials};

/// Pins by install, in the file `pins.toml` next to the credentials. `stead logout` keeps them.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Pins(BTreeMap<InstallId, Pin>);

#[derive(Debug, Serialize, Deserialize)]
struct Pin {
    /// Name of the install when it was pinned. A response with another name is not the pinned
    /// install, whatever its id is.
    name: String,
    fingerprint: String,
}

/// Comparison of an install's keys with the pinned fingerprint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PinStatus {
    Pinned,
    NotPinned,
    /// Another fingerprint is pinned, or the server returned no keys for a pinned install.
    Differs {
        /// Pinned fingerprint.
        pinned: String,
    },
}

/// Returns the fingerprint of the keys that the server returned. Returns `None` if it returned none,
/// or if they are not valid.
pub(crate) fn fingerprint(install: &Install) -> Option<Fingerprint> {
    let keys = install.keys.as_ref()?;
    let public = PublicKeys::parse(keys.generation, &keys.encryption_key, &keys.signing_key)?;
    Some(public.fingerprint(&Of { log_id: &keys.log_id, install: install.id }))
}

/// Refuses an install that the user did not name: its keys belong to another party.
pub(crate) fn check_named(install: &Install, named: &str) -> Result<(), Failure> {
    match install.name == named || install.id.to_string() == named {
        true => Ok(()),
        false => Err(Failure::Outcome(format!(
            "cannot use the keys of {named}: the server returned the install {}, whose keys belong to another party\n  \
             try: ask the operator of the server for the reason",
            install.name
        ))),
    }
}

impl Pins {
    /// Path of the pins: `$XDG_CONFIG_HOME/stead/pins.toml` or `~/.config/stead/pins.toml`.
    fn path() -> Result<PathBuf, Failure> {
        Ok(Credentials::path()?.with_file_name("pins.toml"))
    }

    /// Reads the pins. A missing file has none.
    pub(crate) fn read() -> Result<Self, Failure> {
        let Ok(path) = Pins::path() else { return Ok(Pins::default()) };
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Pins::default()),
            read => read.map_err(|error| error.to_string()),
        };
        let pins = text.and_then(|text| toml::from_str(&text).map_err(|error| error.to_string()));
        pins.map_err(|error| {
            Failure::Usage(format!("cannot read the pinned keys {}: {error}", path.display()))
        })
    }

    /// Pins the keys of an install, and replaces an earlier pin.
    pub(crate) fn pin(&mut self, install: &Install, fingerprint: Fingerprint) {
        let pin = Pin { name: install.name.clone(), fingerprint: fingerprint.to_string() };
        self.0.insert(install.id, pin);
    }

    /// Compares the keys that the server returned with the pinned ones.
    pub(crate) fn status(&self, install: &Install) -> PinStatus {
        let Some(Pin { name, fingerprint: pinned }) = self.0.get(&install.id) else {
            return PinStatus::NotPinned;
        };
        match fingerprint(install) {
            Some(shown) if shown.to_string() == *pinned && *name == install.name => {
                PinStatus::Pinned
            }
            Some(_) | None => PinStatus::Differs { pinned: pinned.clone() },
        }
    }

    /// Writes the pins, and returns the path of the file.
    pub(crate) fn write(&self) -> Result<PathBuf, Failure> {
        let path = Pins::path()?;
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let text = toml::to_string(self)
            .map_err(|error| Failure::Usage(format!("cannot encode the pinned keys: {error}")))?;
        // An interrupted write must not remove the other pins.
        let fresh = path.with_extension("toml.new");
        fs::write(&fresh, text)?;
        fs::rename(&fresh, &path)?;
        Ok(path)
    }
}
