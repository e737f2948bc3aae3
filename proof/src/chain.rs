//! One hash over everything up to a position: change one leaf and every later link changes.
use crate::{Hash, sha256_of};

/// The link before the first event of a log.
pub fn genesis(log_id: &str) -> Hash {
    sha256_of(&[b"stead/chain/v1\n", log_id.as_bytes()])
}

/// The link after one more leaf.
pub fn next(previous: &Hash, leaf: &Hash) -> Hash {
    sha256_of(&[previous, leaf])
}
