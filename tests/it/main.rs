//! Tests of whole programs through their public interfaces.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed test panics")]
#![allow(clippy::disallowed_methods, reason = "tests create ids and start tasks themselves")]

mod api_layers;
mod architecture;
mod archive;
mod aws;
mod backup;
mod bad_deploy;
mod bad_input;
mod cli;
mod cluster_access;
mod cluster_faults;
mod contracts;
mod corpus_app;
mod customer;
mod dashboard;
mod demo;
mod descendants;
mod drift;
mod encrypted_state;
mod engines;
mod faults;
mod files_plugin;
mod git_sources;
mod helm;
mod images;
#[cfg(feature = "fault-injection")]
mod injected_faults;
mod install_keys;
mod isolation;
mod job_logs;
mod keys;
mod kubernetes;
mod lifecycle;
mod older_state;
mod pentest;
mod plan_all;
mod plan_details;
mod plugins;
mod preflight;
mod recovery;
#[cfg(feature = "fault-injection")]
mod rolling;
mod runner_calls;
mod sandbox;
mod secrets;
mod sensitive_values;
mod state_decision;
mod terraform_tools;
mod unavailable;
mod vendor_registry;
mod webhooks;
