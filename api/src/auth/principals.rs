//! In-memory cache of principals, tokens and revoked runners, so that a request needs no query to
//! authenticate.
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{PoisonError, RwLock},
    time::Duration,
};

mod current;
#[cfg(test)]
mod pentest;
mod unreadable;

use domain::{
    access::{Access, AccessEvent, Role},
    decider::{Decider as _, Timestamp},
    digest::Digest,
    ids::{PrincipalId, RunnerId, TokenId},
    runner::{Runner, RunnerEvent},
};
use event_log::{EventLog, LogError, StoredEvent, archive::FLOOR};
use futures::TryStreamExt as _;
use sqlx::PgPool;
use subtle::ConstantTimeEq as _;
use tokio::{sync::watch, time::timeout};

use self::{current::Current, unreadable::Unreadable};
use super::secret;
use crate::problem::{Code, Problem};

/// Maximum time that a request waits for the cache to reach a position.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of archived streams that are read concurrently.
const MAX_CONCURRENT: usize = 8;

/// Principals, tokens and revoked runners, up to a position of the log.
pub(crate) struct PrincipalCache {
    tables: RwLock<Tables>,
    position: watch::Sender<u64>,
    current: Current,
}

#[derive(Default)]
struct Tables {
    principals: HashMap<PrincipalId, PrincipalEntry>,
    by_hash: HashMap<[u8; 32], (PrincipalId, TokenId)>,
    revoked: HashSet<RunnerId>,
    unreadable: Unreadable,
}

#[derive(Default)]
struct PrincipalEntry {
    access: Access,
    version: u64,
}

/// Principal of a valid token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub principal: PrincipalId,
    pub roles: BTreeSet<Role>,
    pub token: TokenId,
}

impl Default for PrincipalCache {
    fn default() -> Self {
        let (tables, position) = (RwLock::default(), watch::Sender::new(0));
        PrincipalCache { tables, position, current: Current::default() }
    }
}

impl PrincipalCache {
    /// Loads the events of all principals and all revocations of runners that are in the database.
    /// Then loads each stream that begins in an archive.
    ///
    /// # Errors
    ///
    /// [`LogError`].
    pub(crate) async fn load(&self, log: &EventLog, pool: &PgPool) -> Result<(), LogError> {
        let position = log.position();
        for event in log.rows_of(Access::NAME, (Runner::NAME, "runner.revoked")).await? {
            self.apply_event(&event);
        }
        // Lists the archived streams after reading the rows. In the other order, rows that move to
        // an archive in between would be missing.
        let older = format!(
            "select aggregate_type, aggregate_id from log_stream where aggregate_type = any($1) \
             and first_position <= {FLOOR} \
             and exists (select from log_archive where dropped_at is not null)"
        );
        let streams: Vec<(String, String)> =
            sqlx::query_as(&older).bind(vec![Access::NAME, Runner::NAME]).fetch_all(pool).await?;
        let streams = futures::stream::iter(streams.into_iter().map(Ok::<_, LogError>));
        let load =
            |(kind, id): (String, String)| async move { self.load_archived(log, &kind, &id).await };
        streams.try_for_each_concurrent(MAX_CONCURRENT, load).await?;
        self.position.send_replace(position);
        Ok(())
    }

    /// Loads one stream that begins in an archive. If the stream is damaged or its archive cannot
    /// be read, rejects only its principal or runner.
    async fn load_archived(&self, log: &EventLog, kind: &str, id: &str) -> Result<(), LogError> {
        if kind == Access::NAME {
            let Ok(principal) = id.parse() else {
                unreadable::warn_of_id(kind, id);
                return Ok(());
            };
            match log.load::<Access>(id).await {
                Ok(loaded) => self.insert(
                    principal,
                    PrincipalEntry {
                        access: Access::clone(&loaded.state),
                        version: loaded.version,
                    },
                ),
                Err(error @ (LogError::Damaged { .. } | LogError::Archived { .. })) => {
                    self.reject(principal, &error);
                }
                Err(error) => return Err(error),
            }
        } else {
            let Ok(runner) = id.parse() else {
                unreadable::warn_of_id(kind, id);
                return Ok(());
            };
            match log.load::<Runner>(id).await {
                Ok(loaded) if loaded.state.revoked => self.revoke(runner),
                Ok(_) => {}
                Err(error @ (LogError::Damaged { .. } | LogError::Archived { .. })) => {
                    self.reject(runner, &error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Applies events in the order of the log. For an event that this release cannot read, rejects
    /// only the principal or runner of the stream. [`PrincipalCache::read_again`] retries later.
    pub(crate) fn apply_events(&self, events: &[StoredEvent]) {
        for stored in events {
            self.apply_event(stored);
        }
        if let Some(last) = events.last() {
            self.position.send_replace(last.position);
        }
    }

    fn apply_event(&self, stored: &StoredEvent) {
        let (kind, id) = (stored.stream.aggregate_type.as_str(), &stored.stream.aggregate_id);
        if kind == Access::NAME {
            let Ok(principal) = id.parse() else { return unreadable::warn_of_stream(stored) };
            match stored.decode() {
                // `read_again` will read the whole stream.
                Ok(_) if self.is_unreadable(principal) => {}
                Ok(events) => self.apply_access(principal, stored.sequence, events),
                Err(error) => self.reject(principal, &error),
            }
        } else if kind == Runner::NAME {
            let Ok(runner) = id.parse() else { return unreadable::warn_of_stream(stored) };
            let is_revoked = |event: &RunnerEvent| matches!(event, RunnerEvent::Revoked { .. });
            match stored.decode() {
                Ok(events) if events.iter().any(is_revoked) => self.revoke(runner),
                Ok(_) => {}
                Err(error) => self.reject(runner, &error),
            }
        }
    }

    fn apply_access(&self, principal: PrincipalId, sequence: u64, events: Vec<AccessEvent>) {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        let known = tables.principals.entry(principal).or_default();
        // The loaded state may already include events that arrive through the tail.
        if sequence <= known.version {
            return;
        }
        events.into_iter().for_each(|event| known.access.evolve(event));
        known.version = sequence;
        tables.index(principal);
    }

    fn insert(&self, principal: PrincipalId, known: PrincipalEntry) {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        tables.principals.insert(principal, known);
        tables.index(principal);
    }

    fn revoke(&self, runner: RunnerId) {
        self.tables.write().unwrap_or_else(PoisonError::into_inner).revoked.insert(runner);
    }

    /// Last position that the cache includes.
    pub(crate) fn position(&self) -> u64 {
        *self.position.borrow()
    }

    /// Waits until the cache includes a position, at most [`CATCH_UP_TIMEOUT`]. A request that
    /// changes access waits before its response, so that the next request to this server sees the
    /// change.
    pub(crate) async fn wait_for_position(&self, position: u64) {
        let mut applied = self.position.subscribe();
        let _ = timeout(CATCH_UP_TIMEOUT, applied.wait_for(|applied| *applied >= position)).await;
    }

    /// Returns true if the cache has no principals and no unreadable callers.
    pub(crate) fn is_empty(&self) -> bool {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        tables.principals.is_empty() && tables.unreadable.is_empty()
    }

    pub(crate) fn is_revoked(&self, runner: RunnerId) -> bool {
        self.tables.read().unwrap_or_else(PoisonError::into_inner).revoked.contains(&runner)
    }

    /// Returns the principal of a token.
    ///
    /// # Errors
    /// 401 if the token is unknown, expired or revoked. 503 if an event of its principal is
    /// unreadable.
    pub(crate) fn identify(&self, token: &str, now: Timestamp) -> Result<Identity, Problem> {
        let unknown = || {
            Problem::new(
                Code::TokenUnknown,
                "token rejected: this server did not issue it; use a token of this server",
            )
        };
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let hash = secret::hash(token);
        let (principal, id) = tables.by_hash.get(&hash).copied().ok_or_else(unknown)?;
        let access = tables.principals.get(&principal).map(|known| &known.access);
        let access = access.ok_or_else(unknown)?;
        let issued = access.token(id).ok_or_else(unknown)?;
        let stored = bytes_of(&issued.sha256).ok_or_else(unknown)?;
        // The map lookup does not compare in constant time, so this comparison does.
        if !bool::from(stored.ct_eq(&hash)) {
            return Err(unknown());
        }
        tables.unreadable.check(principal)?;
        check_token(access, id, now)?;
        Ok(Identity { principal, roles: access.roles.clone(), token: id })
    }

    /// Returns the principal of a token by its id.
    ///
    /// # Errors
    /// 401 if the token is unknown, expired or revoked. 503 if an event of its principal is
    /// unreadable.
    pub(crate) fn identity(
        &self,
        (principal, token): (PrincipalId, TokenId),
        now: Timestamp,
    ) -> Result<Identity, Problem> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let known = tables.principals.get(&principal).ok_or_else(|| {
            Problem::new(Code::TokenUnknown, format!("{principal} does not exist; log in again"))
        })?;
        tables.unreadable.check(principal)?;
        check_token(&known.access, token, now)?;
        Ok(Identity { principal, roles: known.access.roles.clone(), token })
    }

    /// Checks that a token is still valid, and that its principal still has all of these roles.
    /// Streaming responses repeat this check.
    ///
    /// # Errors
    ///
    /// 401 if the token is no longer valid, 403 if a role was revoked, 503 if an event is
    /// unreadable.
    pub(crate) fn check_still_valid(
        &self,
        (principal, token): (PrincipalId, TokenId),
        roles: &BTreeSet<Role>,
        now: Timestamp,
    ) -> Result<(), Problem> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let known = tables.principals.get(&principal).ok_or_else(|| {
            Problem::new(
                Code::TokenUnknown,
                "token rejected: this server did not issue it; use a token of this server",
            )
        })?;
        tables.unreadable.check(principal)?;
        check_token(&known.access, token, now)?;
        if known.access.roles.is_superset(roles) {
            return Ok(());
        }
        Err(Problem::new(
            Code::Forbidden,
            "response ended: a role of the caller was revoked; send the request again",
        ))
    }

    /// Principals with the owner role, except those with an unreadable event.
    pub(crate) fn owners(&self) -> Vec<PrincipalId> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let owners = tables.principals.iter().filter(|(id, known)| {
            known.access.roles.contains(&Role::Owner) && tables.unreadable.check(**id).is_ok()
        });
        owners.map(|(id, _)| *id).collect()
    }
}

/// Rejects a revoked or expired token with 401.
fn check_token(access: &Access, id: TokenId, now: Timestamp) -> Result<(), Problem> {
    if access.is_token_valid(id, now) {
        return Ok(());
    }
    let (code, reason) = match access.revoked.contains(&id) {
        true => (Code::TokenRevoked, "was revoked"),
        false => (Code::TokenExpired, "has expired"),
    };
    Err(Problem::new(
        code,
        format!("token rejected: {id} {reason}; ask an owner for another token"),
    ))
}

impl Tables {
    fn index(&mut self, principal: PrincipalId) {
        let tokens = self.principals.get(&principal).map(|known| known.access.tokens.clone());
        for issued in tokens.unwrap_or_default() {
            if let Some(hash) = bytes_of(&issued.sha256) {
                self.by_hash.insert(hash, (principal, issued.token));
            }
        }
    }
}

fn bytes_of(digest: &Digest) -> Option<[u8; 32]> {
    hex::decode(digest.to_string().strip_prefix("sha256:")?).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use domain::access::{IssuedToken, PrincipalKind};
    use ulid::Ulid;

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_timestamp(1_700_000_000, 0).unwrap()
    }

    fn with_token(expires_at: Option<Timestamp>) -> (PrincipalCache, PrincipalId, TokenId, String) {
        let (principals, secret) = (PrincipalCache::default(), secret::token());
        let (principal, token) = (PrincipalId(Ulid::new()), TokenId(Ulid::new()));
        let sha256 = secret::digest(&secret).unwrap();
        let added = AccessEvent::PrincipalAdded { kind: PrincipalKind::Person, name_ref: None };
        principals.apply_access(principal, 1, vec![added]);
        principals.apply_access(
            principal,
            2,
            vec![AccessEvent::RoleGranted { role: Role::Viewer }],
        );
        let issued = IssuedToken { token, sha256, expires_at };
        principals.apply_access(principal, 3, vec![AccessEvent::TokenIssued(issued)]);
        (principals, principal, token, secret)
    }

    #[test]
    fn token_identifies_its_principal_until_it_expires() {
        let (principals, principal, token, secret) = with_token(Some(now()));
        let before = now() - chrono::TimeDelta::seconds(1);
        let identity = principals.identify(&secret, before).unwrap();
        let still = |roles: &[Role], now| {
            let roles = roles.iter().copied().collect();
            principals.check_still_valid((principal, token), &roles, now).map_err(|no| no.code)
        };
        assert_eq!(still(&[Role::Viewer], before), Ok(()));
        assert_eq!(still(&[Role::Viewer], now()), Err(Code::TokenExpired));
        assert_eq!(still(&[Role::Viewer, Role::Auditor], before), Err(Code::Forbidden));
        assert_eq!((identity.principal, identity.token), (principal, token));
        assert!(identity.roles.contains(&Role::Viewer));
        assert_eq!(principals.identify(&secret, now()).unwrap_err().code, Code::TokenExpired);
        assert_eq!(principals.identify("stead_x", now()).unwrap_err().code, Code::TokenUnknown);
    }

    #[test]
    fn revoked_token_stays_invalid_when_old_events_repeat() {
        let (principals, principal, token, secret) = with_token(None);
        principals.apply_access(principal, 4, vec![AccessEvent::TokenRevoked { token }]);
        assert_eq!(principals.identify(&secret, now()).unwrap_err().code, Code::TokenRevoked);
        principals.apply_access(
            principal,
            2,
            vec![AccessEvent::RoleRevoked { role: Role::Viewer }],
        );
        principals.apply_access(principal, 5, vec![AccessEvent::RoleGranted { role: Role::Owner }]);
        let other = secret::token();
        let (token, sha256) = (TokenId(Ulid::new()), secret::digest(&other).unwrap());
        let issued = IssuedToken { token, sha256, expires_at: None };
        principals.apply_access(principal, 6, vec![AccessEvent::TokenIssued(issued)]);
        let roles = principals.identify(&other, now()).unwrap().roles;
        assert_eq!(roles.into_iter().collect::<Vec<_>>(), [Role::Owner, Role::Viewer]);
    }
}
