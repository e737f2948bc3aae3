//! Decision of a user with the server: it follows the server's newest version, and the server stores
//! it before it is carried out.
use std::io;

use schemas::runner::StateHead;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::{
    Reading, Remote, StateError, StateStore, known,
    remote::Waiting,
    resolve::{Basis, Resolution},
};
use crate::{
    journal::Entry,
    plugins::{Background, Cancel},
};

/// Server of a decision about one component.
pub struct Online {
    remote: Remote,
    component: String,
    cancel: CancellationToken,
}

impl Online {
    pub fn new(remote: Remote, component: &str) -> Self {
        Online { remote, component: component.into(), cancel: CancellationToken::new() }
    }

    fn waiting(&self) -> Waiting<'_> {
        Waiting { component: &self.component, cancel: &self.cancel, line: &silent }
    }

    /// Reads the newest version of the server, for a decision after the entries of the journal.
    pub async fn basis(&self, entries: &[Entry]) -> Result<Basis, StateError> {
        let (newest, recorded) = self.remote.newest_and_recorded(&self.waiting()).await?;
        Ok(Basis::offline(entries, &self.component).online(newest, recorded))
    }

    /// Returns the newest state of the component, as a job that reads it.
    pub async fn read(
        &self,
        store: &StateStore,
        entries: &[Entry],
    ) -> Result<Option<Zeroizing<Vec<u8>>>, StateError> {
        let known = &known(entries).remove(&self.component).unwrap_or_default();
        let (remote, cancel) = (self.remote.clone(), &Cancel::default());
        store.read_newest(&Reading { remote, known, background: &Silent, cancel }).await
    }

    /// Carries out a decision: first on the server, then on this host.
    pub async fn carry_out(&self, resolution: &Resolution) -> Result<(), StateError> {
        resolution.stage()?;
        if let Some((upload, ciphertext)) = resolution.upload() {
            let sent = self.remote.put_patiently(upload, ciphertext, &self.waiting()).await;
            if let Err(error) = sent {
                // Without a response, the server may have it: the next job or decision checks that.
                if matches!(error, StateError::Blocked(_) | StateError::Refused(_)) {
                    resolution.unstage();
                }
                return Err(error);
            }
        }
        resolution.finish(true)
    }
}

/// A command prints only its result.
fn silent(_: &str) {}

/// Stands in for the shim in a command.
#[derive(Debug)]
struct Silent;

impl Background for Silent {
    fn secret(&self, _: Zeroizing<String>) {}
    fn line(&self, _: &str) {}
    fn state(&self, _: &str, _: &StateHead) -> io::Result<()> {
        Ok(())
    }
}
