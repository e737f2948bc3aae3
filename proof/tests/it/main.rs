//! Tests of proofs against vectors and generated logs.

mod bundles;
mod foreign;
mod log;
mod ranges;
mod streams;
mod trees;
mod vectors;
