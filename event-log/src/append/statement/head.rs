//! Compare-and-set of the head row. Every insert of the statement selects from the updated row, so
//! nothing is written if the update does not apply.
use super::{Expected, builder::StatementBuilder};
use crate::{append::Head, stored::bigint};

/// Adds the update of the head. The update applies if all guards are met and the head is the
/// expected one.
pub(super) fn push(sql: &mut StatementBuilder, expected: &Expected<'_>, new: &Head) {
    let (new_position, new_chain) = (sql.value(bigint(new.position)), sql.value(&new.chain[..]));
    let recorded_at = sql.value(new.recorded_at);
    let position = sql.value(bigint(expected.head.position));
    let commit_no = sql.value(bigint(expected.head.commit_no));
    let (fence, epoch) = (sql.value(expected.head.fence), sql.value(expected.head.epoch));
    let format = sql.value(expected.format);
    sql.with_text(|text| {
        let guards = text.guards_are_met();
        text.cte("ok", &format!("select {guards} as yes"));
        let update = format!(
            "update log_head h set position = {new_position}, chain = {new_chain}, recorded_at = {recorded_at},
         commit_no = h.commit_no + 1
    from ok where ok.yes and h.position = {position} and h.commit_no = {commit_no}
     and h.fence = {fence} and h.epoch = {epoch} and h.format = {format}
  returning h.commit_no"
        );
        text.cte("head", &update);
    });
}
