//! Rows of completed nodes of the Merkle tree.
use proof::{Hash, tree::Node};

use super::builder::{StatementBuilder, table};
use crate::stored::bigint;

/// Adds the insert of the nodes.
pub(super) fn push(sql: &mut StatementBuilder, nodes: &[(Node, Hash)]) {
    let columns = [
        ("level", sql.column(nodes.iter().map(|(node, _)| i32::from(node.level)))),
        ("index", sql.column(nodes.iter().map(|(node, _)| bigint(node.index)))),
        ("hash", sql.column(nodes.iter().map(|(_, hash)| &hash[..]))),
    ];
    sql.cte("node", || {
        let rows = table("u", &columns);
        format!(
            "insert into log_node (level, index, hash)
  select u.level, u.index, u.hash
    from head, {rows}"
        )
    });
}
