//! Tests of projections on real Postgres.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed test panics")]
#![allow(clippy::disallowed_methods, reason = "tests create ids and start tasks themselves")]

mod archives;
mod as_of;
mod histories;
mod install_state;
mod queries;
mod rebuilds;
mod support;
mod views;
mod waiting;
