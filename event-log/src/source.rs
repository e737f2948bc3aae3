//! Where the log is read: the database's rows, and the archives of those that are not there any more.
use sqlx::PgPool;

use crate::{Archives, EventLog};

/// Rows and archives together.
#[derive(Debug, Clone)]
pub struct Source {
    /// Connections to the rows.
    pub pool: PgPool,
    /// The archives.
    pub archives: Archives,
}

impl Source {
    /// The same archives, beside other connections: those of another role.
    pub fn new(pool: &PgPool, archives: &Archives) -> Source {
        Source { pool: pool.clone(), archives: archives.clone() }
    }
}

/// Rows only: what is in archives only is an error that says so.
impl From<&PgPool> for Source {
    fn from(pool: &PgPool) -> Source {
        Source { pool: pool.clone(), archives: Archives::default() }
    }
}

impl From<&EventLog> for Source {
    fn from(log: &EventLog) -> Source {
        Source::new(log.pool(), log.archives())
    }
}

impl From<&Source> for Source {
    fn from(source: &Source) -> Source {
        source.clone()
    }
}
