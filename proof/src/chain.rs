//! Hash chain over the log: a change of one leaf changes every later link.
use crate::{Hash, sha256_of};

/// Returns the link before the first event of a log.
pub fn genesis(log_id: &str) -> Hash {
    sha256_of(&[b"stead/chain/v1\n", log_id.as_bytes()])
}

/// Returns the link after one more leaf.
pub fn next(previous: &Hash, leaf: &Hash) -> Hash {
    sha256_of(&[previous, leaf])
}
