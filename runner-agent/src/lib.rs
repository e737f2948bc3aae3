//! The agent in an account: it polls, works and reports. Knows only the wire.
//!
//! ```text
//! customer's host                                                        vendor's server
//! ┌────────────────────────────────────────────────────────────┐
//! │ supervisor ── HTTPS, outbound only ─────────────────────────┼──▶ Runner API, registry
//! │   │ journal.ndjson      ▲ log.ndjson, reports.ndjson        │
//! │   └─▶ shim ─────────────┘ one process per job, outlives us  │
//! │         └─▶ plugin ─▶ terraform, scripts, …                 │
//! └────────────────────────────────────────────────────────────┘
//! ```
//!
//! In reading order: [`data`] [`keys`] [`journal`] [`switch`] [`policy`] [`ask`] [`witness`] are what the customer owns;
//! [`client`] [`enrol`] [`supervisor`] speak with the server; [`shim`] [`plugins`] [`artifacts`] do the work.
pub mod artifacts;
pub mod ask;
pub mod budgets;
mod cgroup;
pub mod cli;
pub mod client;
pub mod data;
pub mod enrol;
pub mod host;
pub mod journal;
pub mod keys;
pub mod plugins;
pub mod policy;
mod processes;
mod program;
pub mod shim;
pub mod show;
mod start;
pub mod state;
pub mod supervisor;
pub mod switch;
pub mod tls;
pub mod witness;
