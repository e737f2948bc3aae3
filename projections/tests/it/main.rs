//! Tests of projections on real Postgres.

mod archives;
mod as_of;
mod histories;
mod install_state;
mod questions;
mod rebuilds;
mod support;
mod views;
mod waiting;
