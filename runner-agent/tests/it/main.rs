//! Tests of the agent, the shim and the plugins with real programs.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed test panics")]
#![allow(clippy::disallowed_methods, reason = "tests create ids and start tasks themselves")]

mod artifacts;
mod conformance;
mod fuzz_responses;
mod pentest;
mod pentest_host;
mod pentest_responses;
mod proxy;
mod shim;
