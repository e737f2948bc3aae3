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

mod build_end_resumes_waiting_runs;
mod build_job_end_completes_build;
mod build_requested_queues_job;
mod install_enrolled_starts_provision;
mod job_end_completes_step;
mod reservation_released_grants_next;
mod run_event_advances_run;

/// Event of an aggregate that policies react to.
#[derive(Debug, Clone, PartialEq)]
pub enum PolicyEvent {
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
    CompleteBuild(JobId),
    /// Continue all runs that wait for the build.
    ContinueRunsOfBuild(BuildId),
    /// Request the first run of an install.
    Provision(InstallId),
    /// Perform the effects that the run requires now.
    AdvanceRun(RunId),
    /// Complete a step of run and install with the result of its job.
    CompleteStep(JobId),
    /// Continue the runs of the install.
    ContinueRunsOfInstall(InstallId),
}

/// Name of the policy, which is its actor in the log, and its function.
pub type Policy = (&'static str, fn(&PolicyEvent) -> Option<Reaction>);

/// All policies, in the order in which they react to one event.
pub const POLICIES: &[Policy] = &[
    ("build_requested_queues_job", build_requested_queues_job::react),
    ("build_job_end_completes_build", build_job_end_completes_build::react),
    ("build_end_resumes_waiting_runs", build_end_resumes_waiting_runs::react),
    ("install_enrolled_starts_provision", install_enrolled_starts_provision::react),
    ("run_event_advances_run", run_event_advances_run::react),
    ("job_end_completes_step", job_end_completes_step::react),
    ("reservation_released_grants_next", reservation_released_grants_next::react),
];

/// Returns the reactions of all policies to an event.
pub fn react(fact: &PolicyEvent) -> Vec<(&'static str, Reaction)> {
    let wanted = |(name, policy): &Policy| policy(fact).map(|reaction| (*name, reaction));
    POLICIES.iter().filter_map(wanted).collect()
}
