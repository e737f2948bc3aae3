//! Isolation of a job's programs from the host and from other jobs.
//!
//! ```text
//! shim ─┬─ sandbox-network            owns the network of the job ── pasta ── network of the host
//!       └─ sh, waits for the journal ─▶ sandbox-enter, joins that network ─▶ bwrap ─┬─ bwrap, first process
//!                                                                                   └─ sandbox-start ── program
//! ```
//!
//! The policy of the customer selects the level, when the job is claimed ([`choose`]). The shim creates the network once per
//! job ([`network`]), and each program gets namespaces of its own ([`view`]). A service of the shim
//! that programs reach on loopback listens with [`JobNetwork::listen`].
mod enter;
mod hidden;
mod holder;
mod host;
mod neighbours;
mod netlink;
mod network;
mod reach;
mod routes;
mod status;
mod view;
mod visible;

use std::path::PathBuf;

use domain::isolation::{Isolation, IsolationLevel, Protection};
use schemas::runner::{JobKind, RunnerMode};
use serde::{Deserialize, Serialize};

pub(crate) use self::{
    enter::{connect, enter, run, start},
    holder::hold,
    host::Support,
    network::resolver,
    status::{EndOfProgram, ProgramEnd, is_program, status_pipe, waits_for_program},
    view::{Mount, View, of_environment},
};
pub use self::{host::Trial, network::JobNetwork, view::Sandbox};
use crate::policy::{Policy, Refusal, SandboxNetwork};

/// Consequence of a network of a job's own.
pub(crate) const WITHOUT_CREDENTIALS: &str = "Jobs in a sandbox do not reach the metadata addresses, so they do \
    not get the credentials of this host's instance role, and this version does not assume a role for them; pass credentials \
    with `pass_env`, or set `sandbox_network = \"shared\"` in the policy";
/// Advice for a policy that selects no level.
pub(crate) const RECOMMENDATION: &str = "Jobs run at the level process, so they can read the keys, the journal and the \
    states of this runner. This host supports a sandbox: set `isolation = \"sandbox\"` in the policy";

/// The running program, for a process of its own.
pub(crate) const RUNNING: &str = "/proc/self/exe";

/// Isolation that was chosen for a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Choice {
    pub level: IsolationLevel,
    /// Path of bubblewrap, at [`IsolationLevel::Sandbox`].
    pub bwrap: Option<PathBuf>,
    /// True if bubblewrap prevents that a program creates user namespaces, in which it would have
    /// capabilities and reach more of the kernel.
    pub closes_namespaces: bool,
    /// Path of pasta. Without it, the job shares the network of the host.
    pub pasta: Option<PathBuf>,
    /// Reason for a lower level or for a shared network. Empty without one.
    pub why: String,
    /// Paths of the host that the job may read in addition.
    pub read: Vec<PathBuf>,
    /// Paths of the host that the job may write in addition.
    pub write: Vec<PathBuf>,
    /// Ports on the host's loopback interface that the job may connect to.
    pub loopback: Vec<u16>,
}

impl Choice {
    /// Returns what a runner reports. `is_root` is whether it runs as root: in a sandbox, its jobs
    /// still read files of the host that only root can read.
    pub(crate) fn report(&self, is_root: bool) -> Isolation {
        let is_enforced = |protection: &Protection| match (self.level, protection) {
            (IsolationLevel::Process, _) => false,
            (IsolationLevel::Sandbox, Protection::Files) => !is_root,
            (IsolationLevel::Sandbox, Protection::Processes) => true,
            (IsolationLevel::Sandbox, Protection::Network | Protection::Metadata) => {
                self.pasta.is_some()
            }
            (IsolationLevel::Sandbox, Protection::Kernel) => self.closes_namespaces,
        };
        let not_enforced = Protection::ALL.into_iter().filter(|one| !is_enforced(one)).collect();
        Isolation { level: self.level, not_enforced }
    }

    /// Returns the reason for a lower level, and what the policy opens. Empty without either.
    pub(crate) fn note(&self) -> String {
        let mut parts = vec![self.why.clone()];
        if self.level == IsolationLevel::Sandbox {
            let list = |what: &str, all: Vec<String>| match all.is_empty() {
                true => String::new(),
                false => format!("{what} {}", all.join(", ")),
            };
            let paths = |all: &[PathBuf]| all.iter().map(|one| one.display().to_string()).collect();
            if !self.closes_namespaces {
                parts.push("programs can create user namespaces (bubblewrap before 0.8.0)".into());
            }
            parts.push(list("reads", paths(&self.read)));
            parts.push(list("writes", paths(&self.write)));
            let ports = self.loopback.iter().map(u16::to_string).collect();
            parts.push(list("reaches the loopback ports", ports));
        }
        parts.retain(|part| !part.is_empty());
        parts.join("; ")
    }
}

/// Chooses the isolation of a job on this host.
///
/// # Errors
/// A refusal if the host does not support what the policy requires for the job.
pub async fn choose(policy: &Policy, kind: JobKind, trial: &Trial) -> Result<Choice, Refusal> {
    let support = match wanted(policy, kind) {
        IsolationLevel::Process => Support::untried(),
        IsolationLevel::Sandbox => Support::of_host(trial).await,
    };
    choose_with(policy, kind, &support)
}

/// Checks that this host supports what the policy requires for the jobs of a runner. Returns whether
/// jobs get a network of their own, without the metadata service of a cloud.
///
/// # Errors
/// A refusal that names what the first kind of job lacks.
pub(crate) async fn check(
    policy: &Policy,
    mode: RunnerMode,
    trial: &Trial,
) -> Result<bool, Refusal> {
    let of_mode = |kind: &&JobKind| (**kind == JobKind::Build) == (mode == RunnerMode::Build);
    let mut has_network = false;
    for kind in JobKind::ALL.iter().filter(of_mode) {
        has_network |= choose(policy, *kind, trial).await?.pasta.is_some();
    }
    Ok(has_network)
}

/// Returns whether the policy selects no level, although this host supports a sandbox.
pub(crate) async fn is_recommended(policy: &Policy, trial: &Trial) -> bool {
    if policy.isolation(JobKind::Apply).is_some() {
        return false;
    }
    let support = Support::of_host(trial).await;
    support.bwrap.is_ok() && support.pasta.is_ok()
}

/// Returns whether jobs of this kind start programs in a sandbox. The others run only git, with the
/// configuration of the runner's user.
pub(crate) fn starts_programs(kind: JobKind) -> bool {
    match kind {
        JobKind::Build | JobKind::Preflight | JobKind::Plan | JobKind::Apply | JobKind::Action => {
            true
        }
        JobKind::Resolve | JobKind::Sync => false,
    }
}

fn wanted(policy: &Policy, kind: JobKind) -> IsolationLevel {
    match starts_programs(kind) {
        // A customer selects a sandbox: it hides files and the credentials of the host that jobs of an
        // existing install may use.
        true => policy.isolation(kind).unwrap_or_default(),
        false => IsolationLevel::Process,
    }
}

/// A job never gets less than the policy says.
fn choose_with(policy: &Policy, kind: JobKind, support: &Support) -> Result<Choice, Refusal> {
    let refused = |what: &str, why: &str, consent: &str| {
        let detail = format!(
            "{} jobs need {what}, but this host does not support it: {why}; follow `stead-runner doctor`, or accept less \
             protection with the line `{consent}` in the policy",
            kind.as_str()
        );
        Err(Refusal::policy("isolation", detail))
    };
    match wanted(policy, kind) {
        IsolationLevel::Process => {
            let why = match policy.isolation(kind) {
                _ if !starts_programs(kind) => {
                    "this kind of job runs only git, outside of a sandbox"
                }
                Some(_) => "the policy selects this level",
                None => "the policy selects no level",
            };
            return Ok(Choice { why: why.into(), ..Choice::default() });
        }
        IsolationLevel::Sandbox => {}
    }
    let bwrap = match &support.bwrap {
        Ok(bwrap) => Some(bwrap.clone()),
        Err(why) => return refused("the isolation level sandbox", why, "isolation = \"process\""),
    };
    let (pasta, why) = match (policy.sandbox_network, &support.pasta) {
        (SandboxNetwork::Shared, _) => (None, "the policy shares the network of the host".into()),
        (SandboxNetwork::Own, Ok(pasta)) => (Some(pasta.clone()), String::new()),
        (SandboxNetwork::Own, Err(why)) => {
            return refused("a network of their own", why, "sandbox_network = \"shared\"");
        }
    };
    let (read, write) = (policy.sandbox_read.clone(), policy.sandbox_write.clone());
    let loopback = policy.sandbox_loopback.clone();
    let (level, closes_namespaces) = (IsolationLevel::Sandbox, support.closes_namespaces);
    Ok(Choice { level, bwrap, closes_namespaces, pasta, why, read, write, loopback })
}

#[cfg(test)]
mod tests;
