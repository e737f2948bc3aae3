//! When this happened, then that is wanted: one file per sentence.
//!
//! A policy sees a fact and says what is wanted; it knows no state. The shell gathers what the
//! reaction needs and tells the aggregates, who do what is wanted now: a fact that is come to again,
//! after a kill, causes nothing again.
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

/// Something that happened, to one of the aggregates that policies listen to.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// To a build.
    Build(BuildId, BuildEvent),
    /// To an install.
    Install(InstallId, InstallEvent),
    /// To a job.
    Job(JobId, JobEvent),
    /// To a run.
    Run(RunId, RunEvent),
}

/// What is wanted because of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// Queue the job that makes the artifact.
    QueueBuild(BuildId),
    /// Tell the build what its job came to.
    SettleBuild(JobId),
    /// Let every run that waits for the build go on.
    WakeWaitersOfBuild(BuildId),
    /// Ask for the first run of an install.
    Provision(InstallId),
    /// Do what the run wants now.
    GoOn(RunId),
    /// Tell run and install what a step's job came to.
    SettleStep(JobId),
    /// Let the runs of the install that wait for something go on.
    WakeWaitersOf(InstallId),
}

/// One sentence: its name, which is its actor in the log, and what it wants when.
pub type Policy = (&'static str, fn(&Fact) -> Option<Reaction>);

/// Every policy, in the order in which they react to one fact.
pub const POLICIES: &[Policy] = &[
    ("requested_build_gets_a_job", requested_build_gets_a_job::react),
    ("ended_build_job_settles_its_build", ended_build_job_settles_its_build::react),
    ("settled_build_wakes_who_waited", settled_build_wakes_who_waited::react),
    ("enrolled_install_provisions_itself", enrolled_install_provisions_itself::react),
    ("run_goes_on", run_goes_on::react),
    ("ended_job_settles_its_step", ended_job_settles_its_step::react),
    ("freed_resource_goes_to_the_next", freed_resource_goes_to_the_next::react),
];

/// What every policy wants because of a fact.
pub fn react(fact: &Fact) -> Vec<(&'static str, Reaction)> {
    let wanted = |(name, policy): &Policy| policy(fact).map(|reaction| (*name, reaction));
    POLICIES.iter().filter_map(wanted).collect()
}
