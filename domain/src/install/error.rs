use super::Holder;
use crate::{
    ids::{RunId, RunnerId},
    run::RunKind,
};

/// Reason to reject an install command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InstallError {
    #[error("install does not exist")]
    NotFound,
    #[error("install already exists with other values")]
    AlreadyCreated,
    /// An install has one runner. Another runner can enrol only after the existing runner is
    /// revoked.
    #[error(
        "install already has the runner {runner}; if its host is lost: \
         `stead runners revoke {runner} --reason '...'`, then enrol another"
    )]
    HasRunner { runner: RunnerId },
    #[error("install has no runner yet; its customer starts one with the enrolment command")]
    NoRunner,
    #[error("{run} ({kind}) is in progress and excludes this run: wait or cancel it")]
    Excluded { run: RunId, kind: RunKind },
    /// The run in progress renders config, inputs and stack outputs step by step, so none of them
    /// may change.
    #[error("another run is in progress: {run} ({kind}); wait or cancel it")]
    DeployInProgress { run: RunId, kind: RunKind },
    /// A run that deploys was already admitted, so the install has no first provision in the
    /// future.
    #[error("the first provision was already requested: approve its plans or turn on auto-approve")]
    NotFirstProvision,
    /// No component of that name is deployed or has a known state.
    #[error(
        "component {name} not found: it was never deployed here; `stead installs show` lists the components"
    )]
    NoSuchComponent { name: String },
    /// Runners report only lineages within the length limit and without control characters.
    #[error(
        "lineage is not valid: it has 1 to {most} printable characters without spaces; copy it from the refusal"
    )]
    InvalidLineage {
        /// Maximum length of a lineage in bytes.
        most: usize,
    },
    #[error("install still has resources in the account")]
    HasResources,
    /// A deprovisioned install admits no runs. Its name is free for another install.
    #[error("install was deprovisioned; create another")]
    Deprovisioned,
    #[error("run may not change this install: it was not admitted or has finished")]
    NotAdmitted,
    #[error("resource is held by {} of {}", .by.step, .by.run)]
    Held { by: Holder },
    /// Only the step that reserved a resource may report a change of the resource.
    #[error("step does not hold the resource that it changed")]
    ResourceNotHeld,
}
