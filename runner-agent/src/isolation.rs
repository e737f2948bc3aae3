//! Isolation of a job's programs from the host and from other jobs.
//!
//! ```text
//! shim ─┬─ sandbox-network            owns the network of the job ── pasta ── network of the host
//!       └─ sh, waits for the journal ─▶ sandbox-enter, joins that network ─▶ bwrap ─┬─ bwrap, first process
//!                                                                                   └─ sandbox-start ── program
//! ```
//!
//! The level is chosen when the job is claimed ([`choose`]). The shim creates the network once per
//! job ([`network`]), and each program gets namespaces of its own ([`view`]). A service of the shim
//! that programs reach on loopback listens with [`JobNetwork::listen`].
mod enter;
mod hidden;
mod holder;
mod host;
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
pub use self::{network::JobNetwork, view::Sandbox};
use crate::policy::{Policy, Refusal, SandboxNetwork};

/// The running program, for a process of its own.
pub(crate) const RUNNING: &str = "/proc/self/exe";

/// Isolation that was chosen for a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Choice {
    pub level: IsolationLevel,
    /// Path of bubblewrap, at [`IsolationLevel::Sandbox`].
    pub bwrap: Option<PathBuf>,
    /// Whether bubblewrap prevents that a program creates user namespaces, in which it would have
    /// capabilities and reach more of the kernel.
    pub closes_namespaces: bool,
    /// Path of pasta. Without it, the job shares the network of the host.
    pub pasta: Option<PathBuf>,
    /// Reason for a lower level or for a shared network. Empty without one.
    pub why: String,
    /// Whether the job gets less than the default because the host does not support it.
    pub is_fallback: bool,
    /// Paths of the host that the job may read in addition.
    pub read: Vec<PathBuf>,
    /// Paths of the host that the job may write in addition.
    pub write: Vec<PathBuf>,
    /// Ports on the host's loopback interface that the job may connect to.
    pub loopback: Vec<u16>,
}

impl Choice {
    /// Returns what the runner reports.
    pub(crate) fn report(&self) -> Isolation {
        let not_enforced = match (self.level, &self.pasta) {
            (IsolationLevel::Process, _) => Protection::ALL.to_vec(),
            (IsolationLevel::Sandbox, None) => vec![Protection::Network, Protection::Metadata],
            (IsolationLevel::Sandbox, Some(_)) => Vec::new(),
        };
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
/// A refusal if the host does not support what the job needs, and the policy does not allow less.
pub(crate) async fn choose(
    policy: &Policy,
    kind: JobKind,
    mode: RunnerMode,
) -> Result<Choice, Refusal> {
    let support = match wanted(policy, kind, mode) {
        IsolationLevel::Process => Support::untried(),
        IsolationLevel::Sandbox => Support::of_host().await,
    };
    choose_with(policy, kind, mode, &support)
}

/// Checks that this host supports the jobs of a runner. Returns the reason if jobs get less than the
/// default, although no rule of the policy says so.
///
/// # Errors
/// A refusal that names what the first kind of job lacks, and the line of the policy that allows less.
pub(crate) async fn check(policy: &Policy, mode: RunnerMode) -> Result<Option<String>, Refusal> {
    let of_mode = |kind: &&JobKind| (**kind == JobKind::Build) == (mode == RunnerMode::Build);
    let mut less = None;
    for kind in JobKind::ALL.iter().filter(of_mode) {
        let choice = choose(policy, *kind, mode).await?;
        less = less.or_else(|| choice.is_fallback.then(|| choice.why.clone()));
    }
    Ok(less)
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

fn wanted(policy: &Policy, kind: JobKind, mode: RunnerMode) -> IsolationLevel {
    if !starts_programs(kind) {
        return IsolationLevel::Process;
    }
    policy.isolation(kind).unwrap_or(match mode {
        RunnerMode::Install => IsolationLevel::Sandbox,
        // A build uses the git and registry configuration of its user, who is the vendor.
        RunnerMode::Build => IsolationLevel::Process,
    })
}

/// A job never gets less than the policy says. The runner cannot know what a job at a lower level
/// would reach: the role of a virtual machine, for example, has no file and no variable.
fn choose_with(
    policy: &Policy,
    kind: JobKind,
    mode: RunnerMode,
    support: &Support,
) -> Result<Choice, Refusal> {
    let refused = |what: &str, why: &str, consent: &str| {
        let detail = format!(
            "{} jobs need {what}, but this host does not support it: {why}; follow `stead-runner doctor`, or accept less \
             protection with the line `{consent}` in the policy",
            kind.as_str()
        );
        Err(Refusal::policy("isolation", detail))
    };
    match wanted(policy, kind, mode) {
        IsolationLevel::Process => {
            let why = match policy.isolation(kind) {
                _ if !starts_programs(kind) => {
                    "this kind of job runs only git, outside of a sandbox"
                }
                Some(_) => "the policy selects this level",
                None => "this is the level of a build runner",
            };
            return Ok(Choice { why: why.into(), ..Choice::default() });
        }
        IsolationLevel::Sandbox => {}
    }
    let is_fallback = policy.accepts_less && policy.isolation(kind).is_none();
    let less = |what: &str, why: &str, line: &str| {
        format!(
            "this host does not support {what}: {why}; follow `stead-runner doctor`, or confirm this with the line `{line}` \
             in the policy (a runner that enrols now needs that line)"
        )
    };
    let bwrap = match &support.bwrap {
        Ok(bwrap) => Some(bwrap.clone()),
        Err(why) if is_fallback => {
            let why = less("the isolation level sandbox", why, "isolation = \"process\"");
            return Ok(Choice { why, is_fallback, ..Choice::default() });
        }
        Err(why) => return refused("the isolation level sandbox", why, "isolation = \"process\""),
    };
    let (pasta, why) = match (policy.sandbox_network, &support.pasta) {
        (SandboxNetwork::Shared, _) => (None, "the policy shares the network of the host".into()),
        (SandboxNetwork::Own, Ok(pasta)) => (Some(pasta.clone()), String::new()),
        (SandboxNetwork::Own, Err(why)) if is_fallback => {
            (None, less("a network of each job's own", why, "sandbox_network = \"shared\""))
        }
        (SandboxNetwork::Own, Err(why)) => {
            return refused("a network of their own", why, "sandbox_network = \"shared\"");
        }
    };
    let (read, write) = (policy.sandbox_read.clone(), policy.sandbox_write.clone());
    let loopback = policy.sandbox_loopback.clone();
    let (level, closes_namespaces) = (IsolationLevel::Sandbox, support.closes_namespaces);
    let is_fallback = is_fallback && support.pasta.is_err() && pasta.is_none();
    Ok(Choice { level, bwrap, closes_namespaces, pasta, why, is_fallback, read, write, loopback })
}

#[cfg(test)]
mod tests;
