//! Pinned public keys of installs. The CLI encrypts data only to a key that a user has pinned,
//! because a server could return the keys of another party.
use std::{collections::BTreeMap, fs, io, path::PathBuf};

use domain::ids::InstallId;
use install_keys::{Fingerprint, Of, PublicKeys};
use schemas::{
    control::installs::{FormerKeys, Install},
    runner::{InstallPublicKeys, succession_is_signed},
};
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

/// Returns whether the keys succeed the pinned ones: each former generation signed the next one, when
/// the customer recovered the install on another host.
fn succeeds(install: &Install, pinned: &str) -> bool {
    let Some(keys) = &install.keys else { return false };
    let public = |generation, encryption: &String, signing: &String| InstallPublicKeys {
        generation,
        encryption_key: encryption.clone(),
        signing_key: signing.clone(),
        signature: String::new(),
    };
    let mut next = public(keys.generation, &keys.encryption_key, &keys.signing_key);
    for former in &keys.former {
        let FormerKeys { generation, encryption_key, signing_key, signature } = former;
        let of = (keys.log_id.as_str(), install.id);
        let is_later = *generation < next.generation;
        if !is_later || !succession_is_signed(of, &next, signing_key, signature) {
            return false;
        }
        let parsed = PublicKeys::parse(*generation, encryption_key, signing_key);
        let of = Of { log_id: &keys.log_id, install: install.id };
        if parsed.is_some_and(|parsed| parsed.fingerprint(&of).to_string() == pinned) {
            return true;
        }
        next = public(*generation, encryption_key, signing_key);
    }
    false
}

/// Refuses an install that the user did not name: its keys belong to another party.
pub(crate) fn check_named(install: &Install, named: &str) -> Result<(), Failure> {
    // A name that looks like an id names no other install.
    let is_named = match named.parse::<InstallId>() {
        Ok(id) => install.id == id,
        Err(_) => install.name == named,
    };
    match is_named {
        true => Ok(()),
        false => Err(Failure::Outcome(format!(
            "cannot use {named}: the server returned another install, {} ({}), whose keys belong to another party\n  \
             try: ask the operator of the server for the reason",
            install.name, install.id
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
            Some(shown)
                if *name == install.name
                    && (shown.to_string() == *pinned || succeeds(install, pinned)) =>
            {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ID: &str = "ins_01ARZ3NDEKTSV4RRFFQ69G5FAV";
    const OTHER_ID: &str = "ins_01ARZ3NDEKTSV4RRFFQ69G5FAW";

    fn install(id: &str, name: &str) -> Install {
        serde_json::from_value(json!({
            "id": id, "name": name, "app": "app_01ARZ3NDEKTSV4RRFFQ69G5FAV", "app_name": "shop",
            "config_version": 2, "state": "active", "auto_approve": false, "inputs": {},
            "stack_outputs": {}, "components": [], "runs": [],
            "keys": {"log_id": "01LOG", "generation": 1, "encryption_key": "11".repeat(32),
                     "signing_key": format!("58{}", "66".repeat(31))},
            "created_at": "2026-11-21T01:02:03.000000Z", "position": 9,
        }))
        .unwrap()
    }

    #[test]
    fn another_install_than_the_named_one_is_refused_also_if_it_is_pinned() {
        let (acme, globex) = (install(ID, "acme"), install(OTHER_ID, "globex"));
        assert!(check_named(&acme, "acme").is_ok() && check_named(&acme, ID).is_ok());
        let mut pins = Pins::default();
        pins.pin(&globex, fingerprint(&globex).unwrap());
        assert_eq!(pins.status(&globex), PinStatus::Pinned);
        for (returned, named) in [
            (&globex, "acme"),
            (&globex, ID),
            (&acme, "ACME"),
            (&acme, "acm"),
            (&acme, ""),
            (&install(OTHER_ID, ID), ID),
        ] {
            let text = check_named(returned, named).unwrap_err().text();
            let expected = format!(
                "cannot use {named}: the server returned another install, {} ({})",
                returned.name, returned.id
            );
            assert!(text.contains(&expected), "{text}");
        }
        // The server renames a pinned install: the name is part of the pin.
        assert!(matches!(pins.status(&install(OTHER_ID, "acme")), PinStatus::Differs { .. }));
    }

    #[test]
    fn keys_that_succeed_the_pinned_ones_are_pinned() {
        use install_keys::{InstallKeys, Seed};
        use schemas::runner::succession;
        let id: InstallId = ID.parse().unwrap();
        let keys = |generation| InstallKeys::new(&Seed::from_bytes(&[7; 32]), generation);
        let public = |generation: u32| {
            let public = keys(generation).public();
            let (encryption_key, signing_key) = (public.encryption_hex(), public.signing_hex());
            InstallPublicKeys { generation, encryption_key, signing_key, signature: String::new() }
        };
        let former = |generation: u32| {
            let signed = succession("01LOG", id, &public(generation + 1));
            let signature = keys(generation).sign_succession(&signed);
            let InstallPublicKeys { encryption_key, signing_key, .. } = public(generation);
            let signature = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, signature);
            FormerKeys { generation, encryption_key, signing_key, signature }
        };
        let shown = |generation: u32, former: Vec<FormerKeys>| {
            let mut install = install(ID, "acme");
            let InstallPublicKeys { encryption_key, signing_key, .. } = public(generation);
            let log_id = "01LOG".into();
            let keys = schemas::control::installs::InstallKeys {
                log_id,
                generation,
                encryption_key,
                signing_key,
                former,
            };
            install.keys = Some(keys);
            install
        };
        let mut pins = Pins::default();
        let first = shown(1, vec![]);
        pins.pin(&first, fingerprint(&first).unwrap());
        assert_eq!(pins.status(&shown(2, vec![former(1)])), PinStatus::Pinned);
        assert_eq!(pins.status(&shown(3, vec![former(2), former(1)])), PinStatus::Pinned);
        let mut forged = former(1);
        forged.signature = former(2).signature;
        let mut renamed = shown(2, vec![former(1)]);
        renamed.name = "globex".into();
        for other in [
            shown(2, vec![]),
            shown(2, vec![forged]),
            shown(3, vec![former(1)]),
            shown(3, vec![former(2)]),
            renamed,
        ] {
            assert!(matches!(pins.status(&other), PinStatus::Differs { .. }), "{other:?}");
        }
    }
}
