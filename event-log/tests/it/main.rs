//! Tests of the log on real Postgres.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed test panics")]

mod append;
mod archives;
mod backends;
mod disk;
mod doubt;
mod interop;
mod migrations;
mod older;
mod partitions;
mod proofs;
mod sealed;
mod servers;
mod snapshots;
mod support;
mod views;
