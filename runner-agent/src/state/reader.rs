//! Reads the newest state of another component for a job. Changes no file: the jobs of that
//! component do.
use schemas::runner::StateHead;
use zeroize::Zeroizing;

use super::{
    KnownState, StateError, StateMark, StateRefusal, StateStore, mark_of,
    opening::{self, Opening, Situation},
    remote::{Newest, Remote, Waiting},
};
use crate::plugins::{Background, Cancel};

/// Server and journal with which a job compares the copy of another component on this host.
pub struct Reading<'a> {
    pub remote: Remote,
    pub known: &'a KnownState,
    pub background: &'a dyn Background,
    pub cancel: &'a Cancel,
}

impl StateStore {
    /// Returns the newest state of the component. Waits for the server, and refuses a state that is
    /// older than the newest one that the journal knows.
    pub async fn read_newest(
        &self,
        reading: &Reading<'_>,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, StateError> {
        let component = self.component();
        let line = |text: &str| reading.background.line(text);
        let cancel = &reading.cancel.requested;
        let waiting = Waiting { component, cancel, line: &line };
        let read = self.newest_with(reading, &waiting).await?;
        // A component of another plugin has versions in the journal too, but never a stored state.
        if read.is_none() && reading.known.digest.is_none() {
            return Ok(None);
        }
        let mark = read.as_ref().map_or_else(StateMark::default, |(mark, _, _)| mark.clone());
        self.check_known(&mark, reading.known, None)
            .map_err(|StateRefusal(why)| StateError::Blocked(why))?;
        let Some((_, head, state)) = read else { return Ok(None) };
        if let Some(head) = head {
            self.check_digest(&head, reading.known, None)?;
        }
        Ok(Some(state))
    }

    async fn newest_with(
        &self,
        reading: &Reading<'_>,
        waiting: &Waiting<'_>,
    ) -> Result<Option<(StateMark, Option<StateHead>, Zeroizing<Vec<u8>>)>, StateError> {
        let context = || format!("cannot read the state of {}", self.component());
        if let Some(plain) = self.plain().map_err(StateError::io(context()))? {
            let plain = Zeroizing::new(plain);
            let newest = reading.remote.newest(None, waiting).await?;
            if let Some(server) = newest.head() {
                let cipher = self.require_cipher().map_err(StateError::io(context()))?;
                if server.digest != cipher.digest(&plain) {
                    return Err(self.diverged(None, Some(server)));
                }
            }
            let mark = mark_of(&plain).map_err(StateError::io(context()))?;
            return Ok(Some((mark, None, plain)));
        }
        let local = self.local_copy()?;
        let digest = local.as_ref().map(|local| local.head.digest.as_str());
        let newest = reading.remote.newest(digest, waiting).await?;
        let is_pending = self.pending().map_err(StateError::io(context()))?.is_some();
        let host = local.as_ref().map(|local| &local.head);
        let (server, known) = (newest.head(), reading.known);
        let situation = Situation { host, is_pending, server, known, fence: None };
        let current = match (opening::decide(&situation), newest) {
            (Opening::Nothing | Opening::Use | Opening::Upload, _) => local,
            (Opening::Download, Newest::Other(head, ciphertext)) => {
                Some(self.decrypt_copy(head, &ciphertext, "the server")?)
            }
            (Opening::Download | Opening::Diverged | Opening::Superseded, newest) => {
                return Err(self.diverged(host, newest.head()));
            }
        };
        Ok(current.map(|current| (current.mark(), Some(current.head), current.state)))
    }
}
