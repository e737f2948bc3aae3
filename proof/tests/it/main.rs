//! Tests of proofs against vectors and generated logs.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed test panics")]

mod bundles;
mod foreign;
mod log;
mod ranges;
mod streams;
mod trees;
mod vectors;
