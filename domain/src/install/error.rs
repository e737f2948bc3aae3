//! Why an install says no, in the words of the business.
use super::Holder;
use crate::{
    ids::{RunId, RunnerId},
    run::RunKind,
};

/// A refusal.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InstallError {
    /// No such install.
    #[error("install does not exist")]
    NotFound,
    /// It was created before, as something else.
    #[error("install is already created, as something else")]
    AlreadyCreated,
    /// Another runner has reported, and is still heard; an install has one.
    #[error(
        "install already has the runner {runner}; if its host is lost: \
         `stead runners revoke {runner} --reason '...'`, then enrol another"
    )]
    HasARunner {
        /// The runner that it has.
        runner: RunnerId,
    },
    /// Nobody is there to do the work.
    #[error("install has no runner yet; its customer starts one with the enrolment command")]
    NoRunner,
    /// Another run excludes this one.
    #[error("{run} ({kind}) is going on and excludes this run")]
    Excluded {
        /// The run that is going on.
        run: RunId,
        /// What it does.
        kind: RunKind,
    },
    /// A run renders what the install follows, until it ends.
    #[error("{run} ({kind}) is bringing what the install follows: wait for it, or cancel it")]
    Bringing {
        /// The run that is going on.
        run: RunId,
        /// What it does.
        kind: RunKind,
    },
    /// Only the first provision of an install is approved in advance.
    #[error(
        "the first provision of the install was requested already; approve its plans, or turn on auto-approve"
    )]
    NotFirstProvision,
    /// No component of that name was ever deployed.
    #[error(
        "component {name} not found: it was never deployed here; `stead installs show` lists the components"
    )]
    NoSuchComponent {
        /// Name of the component.
        name: String,
    },
    /// The lineage is not one that a runner reports.
    #[error(
        "lineage is not valid: it has 1 to {most} printable characters without spaces; copy it from the refusal"
    )]
    InvalidLineage {
        /// Bytes at most.
        most: usize,
    },
    /// There is something to be taken down first.
    #[error("there is still something of the install in the account")]
    NotGone,
    /// It is over, and its name may be another's.
    #[error("install was deprovisioned; create another")]
    Deprovisioned,
    /// The run was never admitted, or is closed.
    #[error("run may not change this install")]
    NotAdmitted,
    /// Another step holds the resource.
    #[error("held by {} of {}", .by.step, .by.run)]
    Held {
        /// Who holds it.
        by: Holder,
    },
    /// The step does not hold what it says it changed.
    #[error("step does not hold what it changed")]
    NotHolding,
}
