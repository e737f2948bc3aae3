//! Reasons to reject an install command.
use super::Holder;
use crate::{
    ids::{RunId, RunnerId},
    run::RunKind,
};

/// Reason to reject a command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InstallError {
    /// No install has this id.
    #[error("install does not exist")]
    NotFound,
    /// The id belongs to an install with other values.
    #[error("install already exists with other values")]
    AlreadyCreated,
    /// An install has one runner, and the existing one is not revoked.
    #[error(
        "install already has the runner {runner}; if its host is lost: \
         `stead runners revoke {runner} --reason '...'`, then enrol another"
    )]
    HasRunner {
        /// Existing runner.
        runner: RunnerId,
    },
    /// A run needs a runner.
    #[error("install has no runner yet; its customer starts one with the enrolment command")]
    NoRunner,
    /// A run in progress excludes this one.
    #[error("{run} ({kind}) is in progress and excludes this run: wait or cancel it")]
    Excluded {
        /// Run in progress.
        run: RunId,
        /// Operation of that run.
        kind: RunKind,
    },
    /// A run in progress renders the pinned config, the inputs and the stack outputs until it
    /// finishes.
    #[error("another run is in progress: {run} ({kind}); wait or cancel it")]
    DeployInProgress {
        /// Run in progress.
        run: RunId,
        /// Operation of that run.
        kind: RunKind,
    },
    /// Only the first provision of an install is approved in advance.
    #[error("the first provision was already requested: approve its plans or turn on auto-approve")]
    NotFirstProvision,
    /// No component of that name was ever deployed.
    #[error(
        "component {name} not found: it was never deployed here; `stead installs show` lists the components"
    )]
    NoSuchComponent {
        /// Name of the component.
        name: String,
    },
    /// No runner reports such a lineage.
    #[error(
        "lineage is not valid: it has 1 to {most} printable characters without spaces; copy it from the refusal"
    )]
    InvalidLineage {
        /// Maximum length in bytes.
        most: usize,
    },
    /// The resources of the install must be destroyed first.
    #[error("install still has resources in the account")]
    HasResources,
    /// A deprovisioned install does not change, and another install may have its name.
    #[error("install was deprovisioned; create another")]
    Deprovisioned,
    /// The run was never admitted, or has finished.
    #[error("run may not change this install: it was not admitted or has finished")]
    NotAdmitted,
    /// Another step holds the resource.
    #[error("resource is held by {} of {}", .by.step, .by.run)]
    Held {
        /// Step that holds the resource.
        by: Holder,
    },
    /// The step does not hold the resource that it reports on.
    #[error("step does not hold the resource that it changed")]
    ResourceNotHeld,
}
