//! Plugins for the component types: one interface, in this process or as an executable.
//!
//! ```text
//!            manifest.kind    manifest.plugin.name
//!  run ──▶ resolve ──────────────────▶ git                git.rs, git on PATH
//!      ──▶ build plan apply action ──▶ terraform_module   terraform.rs, terraform or tofu on PATH
//!                                  ├─▶ action             action.rs, the vendor's scripts
//!      ──▶ build plan sync         ──▶ container_image    image.rs, copies between registries
//!                                  └─▶ anything else      external.rs, `stead-plugin-<name>`, by digest
//! ```
//!
//! A plugin runs in the shim's process, gets a [`JobContext`] and reports to a [`Sink`]. Each child
//! gets its own process group. A cancel sends the stop signal to that group, waits for the grace
//! period, then sends SIGKILL.

mod action;
mod built_image;
mod cluster;
mod contract;
mod details;
mod dispatch;
mod external;
mod git;
mod image;
mod lines;
mod missing_state;
mod plans;
mod plugin;
mod preflight;
mod process;
mod source;
mod terraform;
#[cfg(test)]
mod testing;
mod transfer;
mod work;

pub(crate) use git::agent_environment as git_environment;
pub(crate) use plans::{digest_of_inputs, summary as plan_summary};
pub(crate) use work::is_safe as is_safe_name;

pub use cluster::{Allowed as AllowedInKubeconfig, Feature as KubeconfigFeature};
pub use contract::{
    Background, Cancel, JobContext, Outcome, PlanRecord, PluginError, Registry, Rules,
    SaltedDetails, Sink, StateAccess, Stream,
};

use schemas::manifest::Manifest;

/// Executes the manifest and returns the outcome. The caller has verified manifest, grant and
/// policy, and has claimed the job. The caller enforces the deadline, and cancels through
/// [`JobContext::cancel`].
///
/// # Errors
/// Fails if the plugin refused the work or could not do it. [`PluginError::reason`] is the reason
/// to report.
pub async fn run(
    manifest: &Manifest,
    job: &JobContext,
    sink: &mut dyn Sink,
) -> Result<Outcome, PluginError> {
    dispatch::run(manifest, job, sink).await
}
