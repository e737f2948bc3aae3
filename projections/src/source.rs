//! Where a fold reads: the database, and what opens the log in it.
use event_log::{EventLog, KeyRing};
use sqlx::PgPool;

/// A database with its log, as some role and with some keys reads it.
#[derive(Clone)]
pub struct Source<'a> {
    pub(crate) pool: &'a PgPool,
    pub(crate) keys: KeyRing,
}

/// A log in which nothing is sealed.
impl<'a> From<&'a PgPool> for Source<'a> {
    fn from(pool: &'a PgPool) -> Source<'a> {
        Source { pool, keys: KeyRing::default() }
    }
}

impl<'a> From<(&'a PgPool, &KeyRing)> for Source<'a> {
    fn from((pool, keys): (&'a PgPool, &KeyRing)) -> Source<'a> {
        Source { pool, keys: keys.clone() }
    }
}

impl<'a> From<&'a EventLog> for Source<'a> {
    fn from(log: &'a EventLog) -> Source<'a> {
        Source::from((log.pool(), log.ring()))
    }
}
