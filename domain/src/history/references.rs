//! Streams of an install's history: its runs, the jobs and builds of the runs, and the runners of
//! the jobs.
use crate::{
    build::{Build, BuildEvent},
    ids::BuildId,
    install::InstallEvent,
    job::{Job, JobEvent},
    recorded::{DomainEvent, RecordedEvent},
    run::{Run, RunEvent, Target},
    runner::Runner,
    stream::StreamId,
};

/// Returns the streams that an event references and that belong to the history of its install.
/// Starting from the install's own stream, these references lead to all its runs. They also lead to
/// the jobs and builds of the runs, and to the runners that claimed the jobs.
pub fn references(event: &RecordedEvent) -> Vec<StreamId> {
    match &event.domain_event {
        DomainEvent::Install(_, event) => of_install(event).into_iter().collect(),
        DomainEvent::Run(_, event) => of_run(event),
        DomainEvent::Job(_, JobEvent::Claimed { runner, .. }) => {
            vec![StreamId::of::<Runner>(*runner)]
        }
        DomainEvent::Build(_, event) => of_build(event).into_iter().collect(),
        DomainEvent::Access(..)
        | DomainEvent::App(..)
        | DomainEvent::Component(..)
        | DomainEvent::Enrolment(..)
        | DomainEvent::Job(..)
        | DomainEvent::Name(..)
        | DomainEvent::Plugin(..)
        | DomainEvent::Runner(..)
        | DomainEvent::Subject(..)
        | DomainEvent::Webhook(..) => vec![],
    }
}

fn build(id: &BuildId) -> StreamId {
    StreamId::of::<Build>(*id)
}

fn of_install(event: &InstallEvent) -> Option<StreamId> {
    match event {
        InstallEvent::RunAdmitted { run, .. } => Some(StreamId::of::<Run>(*run)),
        InstallEvent::SandboxApplyStarted { build: id, .. }
        | InstallEvent::SandboxProvisioned { build: id, .. }
        | InstallEvent::ComponentApplyStarted { build: id, .. }
        | InstallEvent::ComponentDeployed { build: id, .. } => Some(build(id)),
        InstallEvent::Created { .. }
        | InstallEvent::InputsChanged { .. }
        | InstallEvent::ConfigPinned { .. }
        | InstallEvent::AutoApproveChanged { .. }
        | InstallEvent::ComponentDisabled { .. }
        | InstallEvent::ComponentEnabled { .. }
        | InstallEvent::FirstProvisionAutoApproved { .. }
        | InstallEvent::StackOutputsReported { .. }
        | InstallEvent::StackOutputsSet { .. }
        | InstallEvent::RunFinished { .. }
        | InstallEvent::ComponentReserved { .. }
        | InstallEvent::ComponentReleased { .. }
        | InstallEvent::SandboxReserved { .. }
        | InstallEvent::SandboxReleased { .. }
        | InstallEvent::SandboxApplyNotRun { .. }
        | InstallEvent::SandboxDestroyed { .. }
        | InstallEvent::ComponentApplyNotRun { .. }
        | InstallEvent::ComponentDestroyed { .. }
        | InstallEvent::ActionCompleted { .. }
        | InstallEvent::StateRecorded { .. }
        | InstallEvent::StateAccepted { .. }
        | InstallEvent::StateAwaited { .. }
        | InstallEvent::StateArrived { .. }
        | InstallEvent::Recovered(_)
        | InstallEvent::Deprovisioned { .. } => None,
    }
}

fn of_run(event: &RunEvent) -> Vec<StreamId> {
    match event {
        RunEvent::Planned { steps, .. } => {
            let builds = steps.iter().filter_map(|step| match &step.target {
                Target::Sandbox { build } | Target::Component { build, .. } => Some(build),
                Target::Action { .. } => None,
            });
            builds.map(build).collect()
        }
        RunEvent::PreflightStarted { job }
        | RunEvent::PreflightPassed { job, .. }
        | RunEvent::StepStarted { job, .. }
        | RunEvent::ApplyStarted { job, .. }
        | RunEvent::PlanProduced { job, .. } => vec![StreamId::of::<Job>(*job)],
        RunEvent::PreflightFailed { job, .. } => {
            job.iter().map(|job| StreamId::of::<Job>(*job)).collect()
        }
        RunEvent::Requested { .. }
        | RunEvent::ApprovalRequested { .. }
        | RunEvent::Approved { .. }
        | RunEvent::Denied { .. }
        | RunEvent::ApprovalExpired { .. }
        | RunEvent::PlanInvalidated { .. }
        | RunEvent::StepSucceeded { .. }
        | RunEvent::StepFailed { .. }
        | RunEvent::StepRetryScheduled { .. }
        | RunEvent::StepSkipped { .. }
        | RunEvent::StepRetried { .. }
        | RunEvent::CancelRequested { .. }
        | RunEvent::Finished { .. } => vec![],
    }
}

fn of_build(event: &BuildEvent) -> Option<StreamId> {
    match event {
        BuildEvent::JobQueued { job, .. } | BuildEvent::Succeeded { job, .. } => {
            Some(StreamId::of::<Job>(*job))
        }
        BuildEvent::ArtifactReused { build: earlier, .. } => Some(build(earlier)),
        BuildEvent::Failed { job, .. } => job.map(StreamId::of::<Job>),
        // A build serves every install of its app. Runs of other installs that waited for it are
        // not part of this history.
        BuildEvent::WaiterAdded { .. } | BuildEvent::Requested(_) => None,
    }
}
