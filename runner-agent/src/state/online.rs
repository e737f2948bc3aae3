//! Decision of a user with the server: it follows the server's newest version, and the server stores
//! it before it is carried out.
use std::collections::BTreeMap;

use tokio_util::sync::CancellationToken;

use super::{
    Remote, StateError,
    remote::Waiting,
    resolve::{Basis, Resolution},
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

    /// Reads the newest version of the server. `highest` is the highest serial of each lineage in
    /// the journal.
    pub async fn basis(&self, highest: BTreeMap<String, u64>) -> Result<Basis, StateError> {
        Ok(Basis::of(self.remote.newest(None, &self.waiting()).await?, highest))
    }

    /// Carries out a decision: first on the server, then on this host.
    pub async fn carry_out(&self, resolution: &Resolution) -> Result<(), StateError> {
        resolution.stage()?;
        if let Some((upload, ciphertext)) = resolution.upload() {
            let sent = self.remote.put_patiently(upload, ciphertext, &self.waiting()).await;
            if let Err(error) = sent {
                // Without a response, the server may have it: the next job or decision checks that.
                if matches!(error, StateError::Blocked(_)) {
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

impl Basis {
    /// Returns the basis of a decision without a server.
    pub fn offline(highest: BTreeMap<String, u64>) -> Self {
        Basis { server: None, highest, is_online: false }
    }
}
