//! Principals and runners with an event that this release cannot read. The event may revoke the
//! caller, so the server rejects the caller until it can read the event. Other callers are not
//! affected.
use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::PoisonError,
};

use domain::{
    access::Access,
    ids::{PrincipalId, RunnerId},
    runner::Runner,
};
use event_log::{EventLog, Loaded, LogError, StoredEvent};

use super::{PrincipalCache, PrincipalEntry};
use crate::problem::{Code, Problem};

/// Caller with a stream in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum CallerId {
    Principal(PrincipalId),
    Runner(RunnerId),
}

impl From<PrincipalId> for CallerId {
    fn from(id: PrincipalId) -> Self {
        CallerId::Principal(id)
    }
}

impl From<RunnerId> for CallerId {
    fn from(id: RunnerId) -> Self {
        CallerId::Runner(id)
    }
}

impl fmt::Display for CallerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallerId::Principal(id) => id.fmt(f),
            CallerId::Runner(id) => id.fmt(f),
        }
    }
}

/// Callers with an unreadable event, and the runners whose streams were read.
#[derive(Default)]
pub(super) struct Unreadable {
    /// Position of the unreadable event of each caller.
    callers: HashMap<CallerId, u64>,
    /// Runners whose streams were read once. After that, the tail of the log keeps them up to date.
    read: HashSet<RunnerId>,
}

impl Unreadable {
    pub(super) fn is_empty(&self) -> bool {
        self.callers.is_empty()
    }

    pub(super) fn check(&self, caller: impl Into<CallerId>) -> Result<(), Problem> {
        let caller = caller.into();
        let Some(position) = self.callers.get(&caller) else { return Ok(()) };
        let detail = format!(
            "request rejected: this server cannot read the event of {caller} at position {position}; \
             upgrade the server to the release that wrote the event, restore a missing archive, \
             or repair the log (`stead audit doctor` shows the event)"
        );
        Err(Problem::new(Code::CallerUnreadable, detail).retry_after(30))
    }
}

impl PrincipalCache {
    /// Number of principals and runners that are rejected because of an unreadable event.
    pub(crate) fn unreadable(&self) -> usize {
        self.tables.read().unwrap_or_else(PoisonError::into_inner).unreadable.callers.len()
    }

    pub(super) fn is_unreadable(&self, caller: impl Into<CallerId>) -> bool {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        tables.unreadable.callers.contains_key(&caller.into())
    }

    /// Rejects a caller until its events are readable again.
    pub(super) fn reject(&self, caller: impl Into<CallerId>, error: &LogError) {
        let caller = caller.into();
        let position = match error {
            LogError::Damaged { position, .. } => *position,
            LogError::Archived { first, .. } => *first,
            // No other error refers to a single event.
            LogError::Database(_)
            | LogError::NoLog
            | LogError::Encoding(_)
            | LogError::Format(_)
            | LogError::WrappingKey(_)
            | LogError::Proof(_) => self.position(),
        };
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        if tables.unreadable.callers.insert(caller, position).is_none() {
            tracing::warn!(
                caller = %caller,
                position,
                error = %error,
                "Cannot read an event; its principal or runner is rejected"
            );
        }
    }

    /// Rejects a runner with an unreadable event. If the runner's stream was not read yet, reads
    /// it, unless `was_read` returns true.
    ///
    /// # Errors
    ///
    /// 503 `caller_unreadable`, or an error of reading the stream.
    pub(crate) async fn check_runner(
        &self,
        log: &EventLog,
        runner: RunnerId,
        was_read: impl FnOnce() -> bool,
    ) -> Result<(), Problem> {
        {
            let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
            tables.unreadable.check(runner)?;
            if tables.unreadable.read.contains(&runner) {
                return Ok(());
            }
        }
        let is_revoked = match was_read() {
            true => Ok(false),
            false => log.load::<Runner>(&runner.to_string()).await.map(|it| it.state.revoked),
        };
        match is_revoked {
            Ok(is_revoked) => {
                if is_revoked {
                    self.revoke(runner);
                }
                let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
                tables.unreadable.read.insert(runner);
                // The tail may have delivered an unreadable event in the meantime.
                tables.unreadable.check(runner)
            }
            Err(error @ LogError::Damaged { .. }) => {
                self.reject(runner, &error);
                self.tables.read().unwrap_or_else(PoisonError::into_inner).unreadable.check(runner)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the streams of rejected callers again. Returns the runners whose streams are readable
    /// again.
    ///
    /// No events may be applied concurrently. An event between the read and its result would be
    /// lost.
    pub(crate) async fn read_again(&self, log: &EventLog) -> Vec<Loaded<Runner>> {
        let callers: Vec<CallerId> = {
            let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
            tables.unreadable.callers.keys().copied().collect()
        };
        let mut runners = vec![];
        for caller in callers {
            match caller {
                CallerId::Principal(principal) => {
                    let read = log.reload::<Access>(&principal.to_string()).await;
                    let Ok(loaded) = read else { continue };
                    let access = Access::clone(&loaded.state);
                    self.insert(principal, PrincipalEntry { access, version: loaded.version });
                }
                CallerId::Runner(runner) => {
                    let read = log.reload::<Runner>(&runner.to_string()).await;
                    let Ok(loaded) = read else { continue };
                    if loaded.state.revoked {
                        self.revoke(runner);
                    }
                    runners.push(loaded);
                }
            }
            let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
            tables.unreadable.callers.remove(&caller);
            tracing::info!(caller = %caller, "Events of a rejected principal or runner are readable again");
        }
        runners
    }
}

/// Logs a skipped event whose stream id is invalid. No caller is rejected, because the stream
/// belongs to no principal or runner.
pub(super) fn warn_of_stream(stored: &StoredEvent) {
    let (stream, position) = (&stored.stream, stored.position);
    tracing::warn!(stream = %stream, position, "Cannot apply an event to the principals: its stream has an invalid id");
}

/// Logs a stream that begins in an archive and belongs to no principal or runner.
pub(super) fn warn_of_id(kind: &str, id: &str) {
    tracing::warn!(kind, id, "Cannot load a principal or runner: its stream has an invalid id");
}
