//! Encrypted copies of a state: encryption with their version, and decryption with its checks.
use std::io;

use bytes::Bytes;
use schemas::{
    manifest::Fence,
    runner::{StateHead, StateUpload},
};
use zeroize::Zeroizing;

use super::{
    Cipher, StateError, StateMark, StateStore,
    cipher::DecryptError,
    local::is_empty,
    mark_of,
    opening::{self, Next},
};

/// State with its version.
pub(super) struct Current {
    pub head: StateHead,
    pub state: Zeroizing<Vec<u8>>,
}

impl Current {
    pub(super) fn mark(&self) -> StateMark {
        StateMark { lineage: Some(self.head.lineage.clone()), serial: self.head.serial }
    }
}

/// Encrypts a state under a fence. Returns its version as well.
pub(super) fn encrypt(
    cipher: &Cipher,
    state: &[u8],
    fence: Fence,
) -> io::Result<(StateHead, Bytes)> {
    let mark = mark_of(state)?;
    let head = StateHead {
        lineage: mark.lineage.unwrap_or_default(),
        serial: mark.serial,
        fence,
        digest: cipher.digest(state),
        is_empty: is_empty(state),
    };
    let ciphertext = cipher.encrypt_state(&head, state)?;
    Ok((head, ciphertext.into()))
}

impl StateStore {
    /// Decrypts a copy. `origin` is for the error.
    pub(super) fn decrypt_copy(
        &self,
        head: StateHead,
        ciphertext: &[u8],
        origin: &str,
    ) -> Result<Current, StateError> {
        let component = &self.component;
        let refused = |why: String| {
            let why = format!("cannot use the state of {component}: {why}");
            self.with_choices(StateError::Blocked(why))
        };
        let context = || format!("cannot read the state of {component}");
        let cipher = self.require_cipher().map_err(StateError::io(context()))?;
        let state = cipher.decrypt_state(&head, ciphertext).map_err(|error: DecryptError| {
            let (lineage, serial) = (&head.lineage, head.serial);
            refused(format!(
                "serial {serial} of lineage {lineage} from {origin} is refused: {error}"
            ))
        })?;
        // The version is authentic, but an earlier runner could have written another one.
        let mark = mark_of(&state).map_err(StateError::io(context()))?;
        if mark.lineage.as_ref() != Some(&head.lineage) || mark.serial != head.serial {
            return Err(refused(format!("the state from {origin} has another version inside")));
        }
        Ok(Current { head, state })
    }

    /// Decrypts the copy on this host.
    pub(super) fn local_copy(&self) -> Result<Option<Current>, StateError> {
        let unreadable = |error: io::Error| {
            let component = &self.component;
            self.with_choices(StateError::Blocked(format!(
                "cannot read the state of {component}: {error}"
            )))
        };
        let stored = self.read_stored().map_err(unreadable)?;
        let origin = self.encrypted_file().display().to_string();
        stored
            .map(|(upload, ciphertext)| self.decrypt_copy(upload.head, &ciphertext, &origin))
            .transpose()
    }

    /// Finishes or sets aside a write that was interrupted. An incomplete file was never
    /// acknowledged and is set aside as well. Returns true if it was set aside. The caller must be
    /// the only writer of the component.
    pub(super) fn finish_next(&self, server: Option<&StateHead>) -> io::Result<bool> {
        let path = self.next_file();
        let next = match self.read_next() {
            Ok(None) => return Ok(false),
            Ok(Some(next)) => Some(next),
            // Something else is in its place.
            Err(error) if path.is_dir() => return Err(error),
            Err(_incomplete) => None,
        };
        let cipher = self.require_cipher()?;
        let host = self.stored().ok().flatten().map(|stored| stored.head);
        let promoted = next.filter(|(upload, ciphertext)| {
            opening::next(upload, host.as_ref(), server) == Next::Promote
                && cipher.decrypt_state(&upload.head, ciphertext).is_ok()
        });
        match promoted {
            Some((upload, _)) => {
                self.keep_former(&upload)?;
                self.commit_next()?;
                Ok(false)
            }
            None => self.set_aside(&path).map(|()| true),
        }
    }

    /// Keeps the copy on this host under another name, unless the server has it and `successor`
    /// continues it without a decision of a user.
    pub(super) fn keep_former(&self, successor: &StateUpload) -> io::Result<()> {
        let is_continued = || -> io::Result<bool> {
            let Some(former) = self.stored()? else { return Ok(true) };
            let (former, new) = (former.head, &successor.head);
            let continues = former.lineage == new.lineage && former.serial <= new.serial;
            Ok(continues && !successor.is_decided && self.pending()?.is_none())
        };
        match is_continued() {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => self.link_aside(&self.encrypted_file()),
        }
    }
}
