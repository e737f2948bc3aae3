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
