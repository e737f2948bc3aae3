use super::Holder;
use crate::{
    ids::{RunId, RunnerId},
    run::RunKind,
    state_version::StateVersion,
};

/// Reason to reject an install command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InstallError {
    #[error("install does not exist")]
    NotFound,
    #[error(
        "cannot create the install: the id belongs to an install with other values; use a new id"
    )]
    AlreadyCreated,
    /// An install has one runner. Another runner can enrol only after the existing runner is
    /// revoked.
    #[error(
        "cannot enrol a runner: the install has {runner}; if its host is lost, use \
         `stead runners revoke {runner} --reason '...'`, then enrol another"
    )]
    HasRunner { runner: RunnerId },
    #[error(
        "cannot start the run: the install has no runner; the customer starts one with the enrolment command"
    )]
    NoRunner,
    #[error("cannot start the run: another run is in progress, {run} ({kind}); wait or cancel it")]
    Excluded { run: RunId, kind: RunKind },
    /// The run in progress renders config, inputs and stack outputs step by step, so none of them
    /// may change.
    #[error(
        "cannot change the install: another run is in progress, {run} ({kind}); wait or cancel it"
    )]
    DeployInProgress { run: RunId, kind: RunKind },
    /// A run that deploys was already admitted, so the install has no first provision in the
    /// future.
    #[error(
        "cannot approve the first provision in advance: a deploy was already requested; approve its plans or turn on auto-approve"
    )]
    NotFirstProvision,
    /// No component of that name is deployed or has a known state.
    #[error(
        "cannot accept the state: component {name} is not deployed and has no known state; `stead installs show` lists the components"
    )]
    NoSuchComponent { name: String },
    /// Runners report only lineages within the length limit and without control characters.
    #[error(
        "cannot accept the state: the lineage must have 1 to {most} printable characters without spaces, and the serial must be less than 2^63; copy both from the runner's refusal"
    )]
    InvalidLineage {
        /// Maximum length of a lineage in bytes.
        most: usize,
    },
    /// The keys of a runner have one successor.
    #[error(
        "cannot recover the install: {runner} has recovered the keys of {former}; recover the wrapped seed of that runner, \
         with its fingerprint"
    )]
    AlreadyRecovered {
        /// Runner whose keys were recovered.
        former: RunnerId,
        /// Runner that recovered them.
        runner: RunnerId,
    },
    #[error(
        "cannot deprovision the install without a run: it still has resources; start a deprovision run"
    )]
    HasResources,
    /// A deprovisioned install admits no runs. Its name is free for another install.
    #[error("cannot change the install: it was deprovisioned; create another install")]
    Deprovisioned,
    #[error("cannot reserve the resource: the run was not admitted or has finished")]
    NotAdmitted,
    #[error("cannot reserve the resource: {} of {} holds it", .by.step, .by.run)]
    Held { by: Holder },
    #[error("cannot reserve the resource: only the runner's host has {state} of {name}")]
    StateAwaited { name: String, state: StateVersion },
    /// Only the step that reserved a resource may report a change of the resource.
    #[error("cannot record the change: the step does not hold the resource")]
    ResourceNotHeld,
}
