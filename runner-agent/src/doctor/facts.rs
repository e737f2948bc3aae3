//! Facts about the host and the data directory.
use std::{path::Path, process::Command};

use domain::isolation::IsolationLevel;
use schemas::runner::JobKind;

use crate::{
    cgroup,
    data::Data,
    isolation::{Support, starts_programs},
    policy::Policy,
};

/// Files that container runtimes create.
const CONTAINER_FILES: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];

/// What a host supports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub is_root: bool,
    pub in_container: bool,
    /// Whether bubblewrap works, or the reason why it does not.
    pub sandbox: Result<(), String>,
    /// Whether pasta works, or the reason why it does not.
    pub network: Result<(), String>,
    pub cgroup: bool,
    /// Whether the kernel limits the memory and the processes of a job.
    pub limits: (bool, bool),
    pub tmpfs: bool,
    /// The data directory of an enrolled runner.
    pub setup: Option<Setup>,
}

/// What a data directory contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// Kinds of jobs that need a sandbox, or the error of the policy.
    pub requires_sandbox: Result<Vec<String>, String>,
    pub has_seed: bool,
    /// Whether jobs without a rule run at the level that the host supports.
    pub accepts_less: bool,
}

impl Facts {
    /// Tries this host. `data` is the directory of an enrolled runner.
    pub(crate) async fn of_host(data: Option<&Data>) -> Facts {
        let Support { bwrap, pasta, closes_namespaces: _ } = Support::of_host().await;
        let groups = cgroup::of_host();
        Facts {
            is_root: nix::unistd::geteuid().is_root(),
            in_container: CONTAINER_FILES.iter().any(|file| Path::new(file).exists()),
            sandbox: bwrap.map(drop),
            network: pasta.map(drop),
            cgroup: groups.is_some(),
            limits: groups.map_or((false, false), |found| (found.memory, found.processes)),
            tmpfs: can_mount_tmpfs(),
            setup: data.map(Setup::of),
        }
    }
}

impl Setup {
    fn of(data: &Data) -> Setup {
        let required = |policy: Policy| {
            let is_required = |kind: &JobKind| match policy.isolation(*kind) {
                _ if !starts_programs(*kind) => false,
                Some(level) => level == IsolationLevel::Sandbox,
                None => *kind != JobKind::Build && !policy.accepts_less,
            };
            JobKind::ALL
                .into_iter()
                .filter(is_required)
                .map(|kind| kind.as_str().to_owned())
                .collect()
        };
        let policy = Policy::current(data);
        let accepts_less = policy.as_ref().is_ok_and(|policy| policy.accepts_less);
        let requires_sandbox =
            policy.map(required).map_err(|error| format!("the runner refuses every job: {error}"));
        Setup { requires_sandbox, accepts_less, has_seed: data.path("keys/install").exists() }
    }
}

/// Mounts a tmpfs in a mount namespace of its own, so that the host does not change.
fn can_mount_tmpfs() -> bool {
    let mut command = Command::new("unshare");
    command.args(["--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]);
    command.output().is_ok_and(|output| output.status.success())
}
