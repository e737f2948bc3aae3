//! Policies, which map an event to a reaction. One policy per file.
//!
//! A policy sees one event and has no state. The caller loads what the reaction needs and handles
//! commands on the aggregates. Their rules make reactions idempotent: an event that is processed
//! again after a crash has no further effect.
use crate::{
    build::BuildEvent,
    ids::{BuildId, InstallId, JobId, RunId},
    install::InstallEvent,
    job::JobEvent,
    run::RunEvent,
};

mod ended_build_job_settles_its_build;
mod ended_job_settles_its_step;
mod enrolled_install_provisions_itself;
mod freed_resource_goes_to_the_next;
mod requested_build_gets_a_job;
mod run_goes_on;
mod settled_build_wakes_who_waited;

/// Event of an aggregate that policies react to.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// Event of a build.
    Build(BuildId, BuildEvent),
    /// Event of an install.
    Install(InstallId, InstallEvent),
    /// Event of a job.
    Job(JobId, JobEvent),
    /// Event of a run.
    Run(RunId, RunEvent),
}

/// Reaction to an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// Queue the job of the build.
    QueueBuild(BuildId),
    /// Complete the build with the result of its job.
    SettleBuild(JobId),
    /// Continue all runs that wait for the build.
    WakeWaitersOfBuild(BuildId),
    /// Request the first run of an install.
    Provision(InstallId),
    /// Perform the effects that the run requires now.
    GoOn(RunId),
    /// Complete a step of run and install with the result of its job.
    SettleStep(JobId),
    /// Continue the runs of the install.
    WakeWaitersOf(InstallId),
}

/// Name of the policy, which is its actor in the log, and its function.
pub type Policy = (&'static str, fn(&Fact) -> Option<Reaction>);

/// All policies, in the order in which they react to one event.
pub const POLICIES: &[Policy] = &[
    ("requested_build_gets_a_job", requested_build_gets_a_job::react),
    ("ended_build_job_settles_its_build", ended_build_job_settles_its_build::react),
    ("settled_build_wakes_who_waited", settled_build_wakes_who_waited::react),
    ("enrolled_install_provisions_itself", enrolled_install_provisions_itself::react),
    ("run_goes_on", run_goes_on::react),
    ("ended_job_settles_its_step", ended_job_settles_its_step::react),
    ("freed_resource_goes_to_the_next", freed_resource_goes_to_the_next::react),
];

/// Returns the reactions of all policies to an event.
pub fn react(fact: &Fact) -> Vec<(&'static str, Reaction)> {
    let wanted = |(name, policy): &Policy| policy(fact).map(|reaction| (*name, reaction));
    POLICIES.iter().filter_map(wanted).collect()
}
