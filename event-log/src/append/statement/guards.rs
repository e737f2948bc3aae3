//! Guards on streams: the version that each commit expects.
use super::{
    StreamRow,
    builder::{StatementBuilder, table},
};
use crate::{StreamId, stored::bigint};

/// Expected version of a stream; 0 if the stream must not exist.
pub(crate) struct StreamGuard {
    pub stream: StreamId,
    pub expected: u64,
}

/// Adds the guard; a new stream must have version 0. A condition of `on conflict do update` cannot
/// replace the guard, because such a condition does not apply to an insert.
pub(super) fn push(sql: &mut StatementBuilder, guards: &[StreamGuard], new_streams: &[StreamRow]) {
    let expected = guards.iter().map(|guard| (&guard.stream, bigint(guard.expected)));
    let rows = expected.chain(new_streams.iter().map(|row| (&row.stream, 0)));
    let columns = [
        ("kind", sql.column(rows.clone().map(|(stream, _)| &*stream.aggregate_type))),
        ("id", sql.column(rows.clone().map(|(stream, _)| &*stream.aggregate_id))),
        ("expected", sql.column(rows.map(|(_, expected)| expected))),
    ];
    let report = "json_agg(json_build_array(kind, id, version))";
    sql.guard("stale_stream", report, || {
        let (guarded, join) = (table("g", &columns), join());
        format!(
            "select distinct g.kind, g.id, coalesce(s.version, 0) as version
    from {guarded}
    {join} log_stream s on s.aggregate_type = g.kind and s.aggregate_id = g.id
   where coalesce(s.version, 0) <> g.expected"
        )
    });
}

/// Join that keeps streams without a row: they have version 0.
fn join() -> &'static str {
    #[cfg(feature = "fault-injection")]
    if proof::fault_injection::has(proof::fault_injection::Fault::GuardWithoutAbsent) {
        return "join";
    }
    "left join"
}
