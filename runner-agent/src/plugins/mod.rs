//! What knows the component types: one contract, in this process or as an executable.
//!
//! ```text
//!            manifest.kind    manifest.plugin.name
//!  run ──▶ build plan apply action ──▶ terraform_module   terraform.rs, terraform or tofu on PATH
//!                                  ├─▶ action             action.rs, the vendor's scripts
//!                                  └─▶ anything else      external.rs, `stead-plugin-<name>`, by digest
//! ```
//!
//! A plugin runs in the shim's process, is given a [`JobContext`] and speaks to a [`Sink`]. What it
//! spawns gets a process group of its own; a cancel is TERM to that group, patience, then KILL.

mod action;
mod contract;
mod dispatch;
mod external;
mod lines;
mod lost;
mod plans;
mod plugin;
mod process;
mod source;
mod terraform;
mod work;

pub(crate) use plans::summary as plan_summary;

pub use contract::{Cancel, JobContext, Outcome, PlanRecord, PluginError, Registry, Sink, Stream};

use schemas::manifest::Manifest;

/// Do what the manifest says, and say what became of it. The caller has checked manifest, grant and
/// policy, holds the execution, and counts the deadline: it cancels through [`JobContext::cancel`].
///
/// # Errors
/// When the work could not be done or was refused; [`PluginError::reason`] is what to report.
pub async fn run(
    manifest: &Manifest,
    job: &JobContext,
    sink: &mut dyn Sink,
) -> Result<Outcome, PluginError> {
    dispatch::run(manifest, job, sink).await
}
