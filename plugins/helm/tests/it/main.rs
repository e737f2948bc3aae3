//! Tests of the executable with the engine of Helm on a real cluster, through the protocol of
//! plugins.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used, reason = "a failed test panics")]
#![allow(clippy::disallowed_methods, reason = "tests create ids themselves")]

mod build;
#[path = "../../../kubernetes/tests/it/cluster.rs"]
#[allow(dead_code, reason = "these tests use a part of it")]
mod cluster;
mod faults;
mod hooks;
mod lifecycle;
mod ownership;
mod plugin;
mod torture;
