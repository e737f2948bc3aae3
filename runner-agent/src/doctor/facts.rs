//! Facts about the host and the data directory.
use std::{path::Path, process::Command};

use domain::isolation::IsolationLevel;
use schemas::runner::{JobKind, RunnerMode};

use crate::{
    cgroup,
    data::Data,
    enrol,
    isolation::{Support, Trial, starts_programs},
    policy::{Policy, SandboxNetwork},
    recovery, seed,
};

/// Files that container runtimes create.
const CONTAINER_FILES: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];

/// Capabilities of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub is_root: bool,
    pub in_container: bool,
    /// Reason why bubblewrap does not work, if it does not.
    pub sandbox: Result<(), String>,
    /// True if bubblewrap can prevent further user namespaces.
    pub closes_namespaces: bool,
    /// Reason why pasta does not work, if it does not.
    pub network: Result<(), String>,
    pub cgroup: bool,
    /// True if the kernel limits the memory, and the processes, of a job.
    pub limits: (bool, bool),
    pub tmpfs: bool,
    /// The data directory of an enrolled runner.
    pub setup: Option<Setup>,
}

/// Contents of a data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// Rules of the policy, or its error.
    pub isolation: Result<Rules, String>,
    pub has_seed: bool,
    /// True if a recovery recipient can recover the keys of the install.
    pub has_recipient: bool,
}

/// Rules of the policy about isolation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// True if the policy selects a level.
    pub selects_level: bool,
    /// Kinds of jobs that run in a sandbox.
    pub in_sandbox: Vec<String>,
    /// True if they use the network of the host.
    pub share_network: bool,
}

impl Facts {
    /// Tries this host. `data` is the directory of an enrolled runner.
    pub(crate) async fn of_host(data: Option<&Data>) -> Facts {
        let trial = data.map_or_else(Trial::without_data, Trial::of);
        let Support { bwrap, pasta, closes_namespaces } = Support::of_host(&trial).await;
        let groups = cgroup::of_host();
        Facts {
            is_root: nix::unistd::geteuid().is_root(),
            in_container: CONTAINER_FILES.iter().any(|file| Path::new(file).exists()),
            sandbox: bwrap.map(drop),
            closes_namespaces,
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
        let identity = enrol::stored_identity(data).ok().flatten();
        let keys = seed::open(data).ok().flatten();
        let has_recipient = keys
            .zip(identity.as_ref())
            .is_some_and(|(keys, identity)| recovery::warning(data, &keys, identity).is_none());
        let mode = identity.map(|identity| identity.mode);
        let policy = Policy::current(data);
        let isolation = policy.map(|policy| Rules::of(&policy, mode));
        let isolation = isolation.map_err(|error| format!("the runner refuses every job: {error}"));
        Setup { isolation, has_seed: data.path("keys/install").exists(), has_recipient }
    }
}

impl Rules {
    fn of(policy: &Policy, mode: Option<RunnerMode>) -> Rules {
        let is_build = mode == Some(RunnerMode::Build);
        let of_mode = |kind: &JobKind| (*kind == JobKind::Build) == is_build;
        let runs_in_sandbox = |kind: &JobKind| {
            starts_programs(*kind) && policy.isolation(*kind) == Some(IsolationLevel::Sandbox)
        };
        let kinds = JobKind::ALL.into_iter().filter(of_mode);
        Rules {
            selects_level: kinds.clone().any(|kind| policy.isolation(kind).is_some()),
            in_sandbox: kinds.filter(runs_in_sandbox).map(|kind| kind.as_str().into()).collect(),
            share_network: policy.sandbox_network == SandboxNetwork::Shared,
        }
    }
}

/// Mounts a tmpfs in a mount namespace of its own, so that the host does not change.
fn can_mount_tmpfs() -> bool {
    let mut command = Command::new("unshare");
    command.args(["--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]);
    command.output().is_ok_and(|output| output.status.success())
}
