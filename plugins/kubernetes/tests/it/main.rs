//! Tests of the executable on a real cluster, through the plugin protocol.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used, reason = "a failed test panics")]
#![allow(clippy::disallowed_methods, reason = "tests create ids themselves")]

mod cluster;
mod double;
mod faults;
mod lifecycle;
mod outages;
mod ownership;
mod plugin;
mod protection;
mod refusals;
mod responses;
