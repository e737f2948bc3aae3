//! Tests of the log on real Postgres.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed test panics")]
#![allow(clippy::disallowed_methods, reason = "tests create ids and start tasks themselves")]

mod append;
mod archives;
mod crashes;
mod disk;
mod encrypted_fields;
mod in_doubt;
mod inline_projections;
mod interop;
mod migrations;
mod partitions;
mod proofs;
mod servers;
mod snapshots;
mod support;
mod terminated_backends;
mod upcasting;
