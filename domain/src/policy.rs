//! Policies, which map an event to a reaction. Each policy has its own file.
//!
//! A policy sees one event and has no state. The caller loads the data that the reaction needs and
//! handles commands on the aggregates. The rules of the aggregates make a reaction idempotent, so
//! an event can be processed again after a crash.
use crate::{
    app::AppEvent,
    build::BuildEvent,
    ids::{AppId, BuildId, InstallId, JobId, RunId},
    install::InstallEvent,
    job::JobEvent,
    run::RunEvent,
};

mod build_end_resumes_waiting_runs;
mod build_job_end_completes_build;
mod build_requested_queues_job;
mod config_published_resolves_sources;
mod install_enrolled_starts_provision;
mod job_end_completes_step;
mod reservation_released_grants_next;
mod resolve_job_end_completes_source;
mod run_event_advances_run;
mod source_resolution_queues_builds;
mod state_arrival_continues_runs;

/// Event of an aggregate that policies react to.
#[derive(Debug, Clone, PartialEq)]
pub enum PolicyEvent {
    App(AppId, AppEvent),
    Build(BuildId, BuildEvent),
    Install(InstallId, InstallEvent),
    Job(JobId, JobEvent),
    Run(RunId, RunEvent),
}

/// Reaction of a policy to an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// Queue the job of the build.
    QueueBuild(BuildId),
    /// Queue the jobs that resolve the git references of a config version.
    ResolveSources(AppId, u32),
    /// Complete the resolution of the job with the job's result.
    CompleteResolve(JobId),
    /// Queue the jobs of all builds of a config version whose source is resolved, and fail the
    /// builds whose source cannot be resolved.
    QueueBuildsOfVersion(AppId, u32),
    /// Complete the build of the job with the job's result.
    CompleteBuild(JobId),
    /// Continue all runs that wait for the build.
    ContinueRunsOfBuild(BuildId),
    /// Request the first provision of an install.
    Provision(InstallId),
    /// Perform the effects that the run requires; see [`crate::run::Run::effects`].
    AdvanceRun(RunId),
    /// Complete the step or preflight of the job with the job's result, on its run and its install.
    CompleteStep(JobId),
    /// Continue all runs of the install that wait for a resource.
    ContinueRunsOfInstall(InstallId),
}

/// Name and function of a policy. Events that a policy causes have the actor `policy:<name>`.
pub type Policy = (&'static str, fn(&PolicyEvent) -> Option<Reaction>);

/// All policies, in the order of their reactions to one event.
pub const POLICIES: &[Policy] = &[
    ("build_requested_queues_job", build_requested_queues_job::react),
    ("config_published_resolves_sources", config_published_resolves_sources::react),
    ("resolve_job_end_completes_source", resolve_job_end_completes_source::react),
    ("source_resolution_queues_builds", source_resolution_queues_builds::react),
    ("build_job_end_completes_build", build_job_end_completes_build::react),
    ("build_end_resumes_waiting_runs", build_end_resumes_waiting_runs::react),
    ("install_enrolled_starts_provision", install_enrolled_starts_provision::react),
    ("run_event_advances_run", run_event_advances_run::react),
    ("job_end_completes_step", job_end_completes_step::react),
    ("reservation_released_grants_next", reservation_released_grants_next::react),
    ("state_arrival_continues_runs", state_arrival_continues_runs::react),
];

/// Returns the reactions of all policies to an event.
pub fn react(event: &PolicyEvent) -> Vec<(&'static str, Reaction)> {
    let reaction_of = |(name, policy): &Policy| policy(event).map(|reaction| (*name, reaction));
    POLICIES.iter().filter_map(reaction_of).collect()
}
