//! Guards on runner sessions: the server that must own each session.
use super::builder::{StatementBuilder, table};
use crate::{SessionGuard, stored::bigint};

/// Adds the guard. The guard locks the rows, because sessions also change outside an append. A
/// batch that writes nothing needs no lock.
pub(super) fn push(sql: &mut StatementBuilder, guards: &[SessionGuard], writes: bool) {
    let runner = sql.column(guards.iter().map(|guard| &*guard.runner));
    let columns = [
        ("runner", runner),
        ("server", sql.column(guards.iter().map(|guard| &*guard.server))),
        ("server_epoch", sql.column(guards.iter().map(|guard| bigint(guard.server_epoch)))),
    ];
    sql.cte("session", || {
        let (guarded, lock) =
            (runner.contains("r.runner"), if writes { " for update" } else { "" });
        format!(
            "select r.runner, r.server, r.server_epoch from runner_session r
   where {guarded} order by r.runner{lock}"
        )
    });
    sql.guard("moved_session", "json_agg(runner)", || {
        let guarded = table("g", &columns);
        format!(
            "select g.runner
    from {guarded}
    left join session s on s.runner = g.runner
   where s.server is distinct from g.server or s.server_epoch is distinct from g.server_epoch"
        )
    });
}
