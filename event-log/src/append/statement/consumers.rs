//! Guards on consumers: the position and the owner that a reaction expects.
use super::builder::{StatementBuilder, table};
use crate::{ConsumerGuard, stored::bigint};

/// Adds the guard. The guard locks the rows, because owner and position also change outside an
/// append. A batch that writes nothing needs no lock.
pub(super) fn push(sql: &mut StatementBuilder, guards: &[ConsumerGuard], writes: bool) {
    let name = sql.column(guards.iter().map(|guard| &*guard.name));
    let columns = [
        ("name", name),
        ("version", sql.column(guards.iter().map(|guard| guard.version))),
        ("shard", sql.column(guards.iter().map(|guard| guard.shard))),
        ("expected", sql.column(guards.iter().map(|guard| bigint(guard.expected)))),
        ("owner_epoch", sql.column(guards.iter().map(|guard| bigint(guard.owner_epoch)))),
    ];
    sql.cte("consumer", || {
        let (guarded, lock) = (name.contains("c.name"), if writes { " for update" } else { "" });
        format!(
            "select c.name, c.version, c.shard, c.position, c.owner_epoch from log_consumer c
   where {guarded} order by c.name, c.version, c.shard{lock}"
        )
    });
    let report = "json_agg(json_build_array(name, version, shard))";
    sql.guard("moved_consumer", report, || {
        let guarded = table("g", &columns);
        format!(
            "select g.name, g.version, g.shard
    from {guarded}
    left join consumer c on c.name = g.name and c.version = g.version and c.shard = g.shard
   where c.position is distinct from g.expected or c.owner_epoch is distinct from g.owner_epoch"
        )
    });
}
