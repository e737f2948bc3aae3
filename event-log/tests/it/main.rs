//! Tests of the log on real Postgres.

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
