//! Kinds of jobs and their properties. A new kind declares its properties in
//! [`JobKind::properties`].
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::runner::RunnerMode;

/// Kind of a job, which determines its class, the mode of its runner and its result.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    Encode,
    Decode,
    ToSchema,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// Resolves a reference of a git repository to a commit.
    Resolve,
    /// Packs the source of a component into an artifact.
    Build,
    /// Checks the requirements of a run before its first change.
    Preflight,
    /// Computes the changes that an apply would make.
    Plan,
    /// Makes the changes of an approved plan.
    Apply,
    /// Copies the image of an approved plan to the registry of the install.
    Sync,
    /// Runs a script of the vendor.
    Action,
}

/// Effects of a job. The class determines if a lost job may run again, and which actors may resolve
/// an unknown outcome.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Encode, Decode, ToSchema,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobClass {
    /// Changes no resources. A lost job runs again while attempts are left, unless it is being
    /// cancelled.
    Pure,
    /// Changes resources. A lost job runs again only with evidence that no process started, or
    /// after an actor resolved the outcome as a retry.
    Mutating,
    /// Runs a script with unknown effects. As `mutating`, but only a principal may resolve an
    /// unknown outcome.
    Unsafe,
}

/// Result of a successful job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobProduct {
    /// Commit of a git reference, reported as the output `commit`. The job belongs to a config
    /// version.
    Commit,
    /// Artifact in the registry. The job belongs to a build.
    Artifact,
    /// Checks of the requirements of a run. The job belongs to a run.
    Checks,
    /// Plan to approve. The step of the job continues with an apply or a sync.
    Plan,
    /// Outputs of the component or action. The step of the job ends.
    Outputs,
}

struct Properties {
    name: &'static str,
    class: JobClass,
    runner_mode: RunnerMode,
    product: JobProduct,
    uses_state: bool,
    uses_reserved_slot: bool,
    subject: &'static str,
}

impl JobKind {
    pub const ALL: [JobKind; 7] = [
        JobKind::Resolve,
        JobKind::Build,
        JobKind::Preflight,
        JobKind::Plan,
        JobKind::Apply,
        JobKind::Sync,
        JobKind::Action,
    ];

    const fn properties(self) -> Properties {
        match self {
            JobKind::Resolve => Properties {
                name: "resolve",
                class: JobClass::Pure,
                runner_mode: RunnerMode::Build,
                product: JobProduct::Commit,
                uses_state: false,
                uses_reserved_slot: true,
                subject: "repo",
            },
            JobKind::Build => Properties {
                name: "build",
                class: JobClass::Pure,
                runner_mode: RunnerMode::Build,
                product: JobProduct::Artifact,
                uses_state: false,
                uses_reserved_slot: false,
                subject: "component",
            },
            JobKind::Preflight => Properties {
                name: "preflight",
                class: JobClass::Pure,
                runner_mode: RunnerMode::Install,
                product: JobProduct::Checks,
                uses_state: false,
                uses_reserved_slot: true,
                subject: "run",
            },
            JobKind::Plan => Properties {
                name: "plan",
                class: JobClass::Pure,
                runner_mode: RunnerMode::Install,
                product: JobProduct::Plan,
                uses_state: true,
                uses_reserved_slot: false,
                subject: "component",
            },
            JobKind::Apply => Properties {
                name: "apply",
                class: JobClass::Mutating,
                runner_mode: RunnerMode::Install,
                product: JobProduct::Outputs,
                uses_state: true,
                uses_reserved_slot: false,
                subject: "component",
            },
            // A copy by digest can be repeated, and leaves what is deployed unchanged.
            JobKind::Sync => Properties {
                name: "sync",
                class: JobClass::Pure,
                runner_mode: RunnerMode::Install,
                product: JobProduct::Outputs,
                uses_state: false,
                uses_reserved_slot: false,
                subject: "component",
            },
            JobKind::Action => Properties {
                name: "action",
                class: JobClass::Unsafe,
                runner_mode: RunnerMode::Install,
                product: JobProduct::Outputs,
                uses_state: false,
                uses_reserved_slot: true,
                subject: "action",
            },
        }
    }

    /// Returns the name in events and in the APIs.
    pub const fn as_str(self) -> &'static str {
        self.properties().name
    }

    pub const fn class(self) -> JobClass {
        self.properties().class
    }

    /// Returns true if runners of this mode accept jobs of this kind.
    pub fn runs_on(self, mode: RunnerMode) -> bool {
        self.properties().runner_mode == mode
    }

    /// Returns the result of a successful job of this kind.
    pub const fn product(self) -> JobProduct {
        self.properties().product
    }

    /// Returns true if jobs of this kind read or write the state of their component.
    pub const fn uses_state(self) -> bool {
        self.properties().uses_state
    }

    /// Returns true if jobs of this kind may use the reserved slot of a runner with several slots.
    /// The slot is for short work.
    pub const fn uses_reserved_slot(self) -> bool {
        self.properties().uses_reserved_slot
    }

    /// Returns the key of the manifest input that names the component, action, repository or run.
    pub const fn subject(self) -> &'static str {
        self.properties().subject
    }
}

impl JobClass {
    /// Returns the name in events and in the APIs.
    pub const fn as_str(self) -> &'static str {
        match self {
            JobClass::Pure => "pure",
            JobClass::Mutating => "mutating",
            JobClass::Unsafe => "unsafe",
        }
    }

    /// Returns the grace period between SIGTERM and SIGKILL, in seconds. An interrupted Terraform
    /// may need minutes to write its state.
    pub const fn grace_s(self) -> u64 {
        match self {
            JobClass::Mutating => 300,
            JobClass::Pure | JobClass::Unsafe => 30,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_kind_is_its_json() {
        for kind in JobKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
            assert_eq!(serde_json::to_value(kind.class()).unwrap(), kind.class().as_str());
        }
    }
}
