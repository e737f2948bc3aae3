use sqlx::PgPool;

use crate::{Archives, EventLog, KeyRing};

/// Parts that a read of the log needs: rows in the database, archives and keys.
#[derive(Clone)]
pub struct Source {
    pub pool: PgPool,
    /// Archives of events without rows.
    pub archives: Archives,
    /// Keys that decrypt personal data fields.
    pub keys: KeyRing,
}

impl Source {
    pub fn new(pool: &PgPool, archives: &Archives, keys: &KeyRing) -> Source {
        Source { pool: pool.clone(), archives: archives.clone(), keys: keys.clone() }
    }
}

/// Creates a source of rows only. Reading an event that only archives have, or that has encrypted
/// fields, is an error.
impl From<&PgPool> for Source {
    fn from(pool: &PgPool) -> Source {
        Source::new(pool, &Archives::default(), &KeyRing::default())
    }
}

impl From<&EventLog> for Source {
    fn from(log: &EventLog) -> Source {
        Source::new(log.pool(), log.archives(), log.key_ring())
    }
}

impl From<&Source> for Source {
    fn from(source: &Source) -> Source {
        source.clone()
    }
}
