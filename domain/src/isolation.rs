//! Isolation of a job from the runner's host, as the runner reports it.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Isolation of an execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode, ToSchema)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Isolation {
    /// Level that the customer's policy selected.
    pub level: IsolationLevel,
    /// Protections that the host or the level does not provide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_enforced: Vec<Protection>,
}

/// Level of isolation.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Default,
    Serialize,
    Deserialize,
    Encode,
    Decode,
    ToSchema,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum IsolationLevel {
    /// The job runs as the user of the runner, in a process tree of its own.
    #[default]
    Process,
    /// The job runs in namespaces of its own, with a read-only view of the host.
    Sandbox,
}

impl IsolationLevel {
    /// All levels, lowest first.
    pub const ALL: [IsolationLevel; 2] = [IsolationLevel::Process, IsolationLevel::Sandbox];

    /// Returns the name in policies, events and the APIs.
    pub fn as_str(self) -> &'static str {
        match self {
            IsolationLevel::Process => "process",
            IsolationLevel::Sandbox => "sandbox",
        }
    }
}

/// Protection of the host and of other jobs against the code of a job.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Encode,
    Decode,
    ToSchema,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Protection {
    /// Files of the runner, of its user and of other jobs, and those of the host that only root can
    /// read.
    Files,
    /// Processes of the host and of other jobs.
    Processes,
    /// Services on the loopback interface and abstract sockets of the host.
    Network,
    /// Metadata service of the cloud, which has the credentials of the host.
    Metadata,
    /// Parts of the kernel that only a program with capabilities reaches, for example in a user
    /// namespace that it created.
    Kernel,
}

impl Protection {
    /// All protections.
    pub const ALL: [Protection; 5] = [
        Protection::Files,
        Protection::Processes,
        Protection::Network,
        Protection::Metadata,
        Protection::Kernel,
    ];

    /// Returns the name in events and in the APIs.
    pub fn as_str(self) -> &'static str {
        match self {
            Protection::Files => "files",
            Protection::Processes => "processes",
            Protection::Network => "network",
            Protection::Metadata => "metadata",
            Protection::Kernel => "kernel",
        }
    }
}

impl Isolation {
    /// Returns the isolation with each protection once. A report can contain more.
    pub fn without_repetitions(mut self) -> Isolation {
        self.not_enforced.sort_unstable();
        self.not_enforced.dedup();
        self
    }

    /// Describes the isolation for users: `sandbox`, or `process (not enforced: files, …)`.
    pub fn text(&self) -> String {
        let level = self.level.as_str();
        match self.not_enforced.as_slice() {
            [] => level.to_owned(),
            missing => {
                let names: Vec<_> = missing.iter().map(|one| one.as_str()).collect();
                format!("{level} (not enforced: {})", names.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_protection_counts_once() {
        let not_enforced = [[Protection::Metadata, Protection::Files]; 100].concat();
        let isolation = Isolation { level: IsolationLevel::Sandbox, not_enforced };
        let expected = vec![Protection::Files, Protection::Metadata];
        assert_eq!(isolation.without_repetitions().not_enforced, expected);
    }

    #[test]
    fn the_text_names_what_is_not_enforced() {
        let of = |level, not_enforced| Isolation { level, not_enforced }.text();
        assert_eq!(of(IsolationLevel::Sandbox, vec![]), "sandbox");
        let missing = vec![Protection::Network, Protection::Metadata];
        assert_eq!(
            of(IsolationLevel::Sandbox, missing),
            "sandbox (not enforced: network, metadata)"
        );
    }
}
