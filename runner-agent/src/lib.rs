//! Runner agent in the customer's account: polls the server, runs jobs and reports. The crate knows
//! only the wire format of the server.
//!
//! ```text
//! customer's host                                                        vendor's server
//! ┌────────────────────────────────────────────────────────────┐
//! │ supervisor ── HTTPS, outbound only ─────────────────────────┼──▶ Runner API, registry
//! │   │ journal.ndjson      ▲ log.ndjson, reports.ndjson        │
//! │   └─▶ shim ─────────────┘ one per job, outlives the agent   │
//! │         └─▶ plugin ─▶ terraform, scripts, …                 │
//! └────────────────────────────────────────────────────────────┘
//! ```
//!
//! Reading order: [`data`] [`keys`] [`seed`] [`journal`] [`disable`] [`policy`] [`approval`]
//! [`witness`] belong to the customer; [`client`] [`enrol`] [`supervisor`] communicate with the
//! server; [`shim`] [`plugins`] [`artifacts`] run the jobs.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests create ids and start tasks themselves")
)]
pub mod approval;
pub mod artifacts;
pub mod budgets;
mod cgroup;
pub mod cli;
pub mod client;
pub mod data;
pub mod disable;
pub mod doctor;
pub mod enrol;
pub mod host;
mod ids;
pub mod images;
pub mod isolation;
pub mod journal;
pub mod keys;
pub mod plugins;
pub mod policy;
mod processes;
mod program;
pub mod recovery;
pub mod seed;
pub mod shim;
pub mod show;
mod start;
pub mod state;
pub mod supervisor;
mod tasks;
pub mod tls;
pub mod values;
pub mod witness;
