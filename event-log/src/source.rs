//! Where the log is read: the database's rows, the archives of those that are not there any more, and what opens both.
use sqlx::PgPool;

use crate::{Archives, EventLog, KeyRing};

/// Rows and archives together, as some role and with some keys reads them.
#[derive(Clone)]
pub struct Source {
    /// Connections to the rows.
    pub pool: PgPool,
    /// The archives.
    pub archives: Archives,
    /// What opens the words of subjects.
    pub keys: KeyRing,
}

impl Source {
    /// Rows, archives and keys that are known one by one.
    pub fn new(pool: &PgPool, archives: &Archives, keys: &KeyRing) -> Source {
        Source { pool: pool.clone(), archives: archives.clone(), keys: keys.clone() }
    }
}

/// Rows in which nothing is sealed: what is in archives only, or sealed, is an error that says so.
impl From<&PgPool> for Source {
    fn from(pool: &PgPool) -> Source {
        Source::new(pool, &Archives::default(), &KeyRing::default())
    }
}

impl From<&EventLog> for Source {
    fn from(log: &EventLog) -> Source {
        Source::new(log.pool(), log.archives(), log.ring())
    }
}

impl From<&Source> for Source {
    fn from(source: &Source) -> Source {
        source.clone()
    }
}
