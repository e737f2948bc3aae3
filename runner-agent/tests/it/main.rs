//! Tests of the agent, the shim and the plugins with real programs.

mod artifacts;
mod conformance;
mod fuzz_responses;
mod pentest;
mod pentest_host;
mod pentest_responses;
mod proxy;
mod shim;
