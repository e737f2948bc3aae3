//! Builds a history: assigns each event to its run, and derives requests, interventions, jobs and
//! changes.
use std::collections::{BTreeMap, HashMap};

use crate::{
    decider::Decider as _,
    ids::{JobId, RunId, StepId},
    install::{Install, InstallEvent},
    job::{JobEvent, Origin},
    recorded::{DomainEvent, RecordedEvent},
    run::{Request, RunEvent, StepSpec, Target},
};

use super::{
    EventSummary, History, Intervention, InterventionKind, RunHistory,
    components::{ComponentChange, changed_component},
    jobs::Jobs,
    reason,
};

/// Returns the run if the event records its admission.
pub fn admitted_run(event: &RecordedEvent) -> Option<RunId> {
    let DomainEvent::Install(_, InstallEvent::RunAdmitted { run, .. }) = &event.domain_event else {
        return None;
    };
    Some(*run)
}

/// Returns the job if the event records that a run started it, for its preflight or a step.
pub fn started_job(event: &RecordedEvent) -> Option<JobId> {
    let DomainEvent::Run(
        _,
        RunEvent::PreflightStarted { job }
        | RunEvent::StepStarted { job, .. }
        | RunEvent::ApplyStarted { job, .. },
    ) = &event.domain_event
    else {
        return None;
    };
    Some(*job)
}

pub fn summary(event: &RecordedEvent) -> EventSummary {
    EventSummary {
        position: event.position,
        at: event.at,
        event_type: event.event_type(),
        stream: event.stream().to_string(),
        actor: event.actor.clone(),
        reason: reason(&event.domain_event),
    }
}

/// Builds the history from events in the order of their positions. Lists no events up to `from`:
/// they provide context, such as earlier approvals. `before` is the install at `from`. The caller
/// sets `complete_through`.
pub fn build_history(before: &Install, from: u64, events: &[RecordedEvent]) -> History {
    let mut builder = HistoryBuilder { install: before.clone(), ..HistoryBuilder::default() };
    for event in events {
        builder.take(event, event.position > from);
    }
    let runs = builder.runs.into_values().filter(|run| run.is_in_range);
    let mut runs: Vec<RunHistory> = runs.filter_map(RunBuilder::finish).collect();
    runs.sort_by_key(|run| (run.requested_at, run.run));
    History { runs, other_events: builder.others, complete_through: 0 }
}

#[derive(Default)]
struct HistoryBuilder {
    install: Install,
    runs: BTreeMap<RunId, RunBuilder>,
    of_job: HashMap<JobId, RunId>,
    others: Vec<EventSummary>,
}

#[derive(Default)]
struct RunBuilder {
    history: Option<RunHistory>,
    steps: Vec<StepSpec>,
    jobs: Jobs,
    step_of: HashMap<JobId, StepId>,
    components: BTreeMap<String, ComponentChange>,
    is_in_range: bool,
}

impl HistoryBuilder {
    fn take(&mut self, event: &RecordedEvent, in_range: bool) {
        let run = match &event.domain_event {
            DomainEvent::Install(_, domain_event) => {
                let run = of_install(domain_event);
                self.change(run, domain_event);
                run
            }
            DomainEvent::Run(run, domain_event) => {
                self.run(*run).take(domain_event, event);
                if let Some(job) = started_job(event) {
                    self.of_job.insert(job, *run);
                }
                Some(*run)
            }
            DomainEvent::Job(id, domain_event) => {
                if let JobEvent::Queued(work) = domain_event
                    && let Origin::Preflight { run, .. } | Origin::Step { run, .. } = work.origin
                {
                    self.of_job.insert(*id, run);
                }
                let run = self.of_job.get(id).copied();
                if let Some(run) = run {
                    self.run(run).take_job(*id, domain_event, event, in_range);
                }
                run
            }
            DomainEvent::Access(..)
            | DomainEvent::App(..)
            | DomainEvent::Build(..)
            | DomainEvent::Component(..)
            | DomainEvent::Enrolment(..)
            | DomainEvent::Name(..)
            | DomainEvent::Plugin(..)
            | DomainEvent::Runner(..)
            | DomainEvent::Subject(..)
            | DomainEvent::Webhook(..) => None,
        };
        if !in_range {
            return;
        }
        match run {
            Some(run) => {
                let builder = self.run(run);
                builder.is_in_range = true;
                builder.history(run).events.push(summary(event));
            }
            None => self.others.push(summary(event)),
        }
    }

    /// Applies an event to the install, and records the change of a component relative to its
    /// version before the run.
    fn change(&mut self, run: Option<RunId>, domain_event: &InstallEvent) {
        let Some((run, name)) = run.zip(changed_component(domain_event)) else {
            self.install.evolve(domain_event.clone());
            return;
        };
        let before = ComponentChange::completed(&self.install, name, run);
        self.install.evolve(domain_event.clone());
        let earlier = self.run(run).components.remove(name.unwrap_or(SANDBOX));
        let change = earlier.unwrap_or(before).with(&self.install, name, domain_event);
        self.run(run).components.insert(name.unwrap_or(SANDBOX).to_owned(), change);
    }

    fn run(&mut self, run: RunId) -> &mut RunBuilder {
        let builder = self.runs.entry(run).or_default();
        builder.history(run);
        builder
    }
}

/// Name of the sandbox among the components, as in the public contracts.
const SANDBOX: &str = "sandbox";

impl RunBuilder {
    fn history(&mut self, run: RunId) -> &mut RunHistory {
        self.history.get_or_insert_with(|| RunHistory {
            run,
            request: None,
            requested_at: None,
            outcome: None,
            ended_at: None,
            interventions: vec![],
            jobs: vec![],
            components: vec![],
            events: vec![],
        })
    }

    fn take(&mut self, domain_event: &RunEvent, event: &RecordedEvent) {
        let Some(history) = &mut self.history else { return };
        let new =
            |kind, step: Option<StepId>, digest, by: &_, reason: Option<&String>| Intervention {
                kind,
                target: step.and_then(|step| name_of(&self.steps, step)),
                digest,
                by: Clone::clone(by),
                reason: reason.cloned(),
                at: event.at,
                position: event.position,
            };
        let intervention = match domain_event {
            RunEvent::Requested { install, kind, cause, by, config_version, reason, plan_all } => {
                let (install, kind, config_version) = (*install, *kind, *config_version);
                let (cause, by, reason) = (cause.clone(), by.clone(), reason.clone());
                let plan_all = *plan_all;
                history.request =
                    Some(Request { install, kind, cause, by, config_version, reason, plan_all });
                history.requested_at = Some(event.at);
                return;
            }
            RunEvent::Planned { steps, .. } => {
                self.steps.clone_from(steps);
                return;
            }
            RunEvent::StepStarted { step, job } | RunEvent::ApplyStarted { step, job } => {
                self.step_of.insert(*job, *step);
                return;
            }
            RunEvent::Finished { outcome } => {
                history.outcome = Some(*outcome);
                history.ended_at = Some(event.at);
                return;
            }
            RunEvent::Approved { step, digest, by, reason } => {
                new(InterventionKind::Approved, Some(*step), Some(digest.clone()), by, Some(reason))
            }
            RunEvent::Denied { step, digest, by, reason } => {
                new(InterventionKind::Denied, Some(*step), Some(digest.clone()), by, Some(reason))
            }
            RunEvent::ApprovalExpired { step, digest } => new(
                InterventionKind::Expired,
                Some(*step),
                Some(digest.clone()),
                &event.actor,
                None,
            ),
            RunEvent::StepRetried { step, by, reason } => {
                new(InterventionKind::Retried, Some(*step), None, by, reason.as_ref())
            }
            RunEvent::CancelRequested { by, reason, .. } => {
                new(InterventionKind::CancelRequested, None, None, by, Some(reason))
            }
            RunEvent::PreflightStarted { .. }
            | RunEvent::PreflightPassed { .. }
            | RunEvent::PreflightFailed { .. }
            | RunEvent::PlanProduced { .. }
            | RunEvent::ApprovalRequested { .. }
            | RunEvent::PlanInvalidated { .. }
            | RunEvent::StepSucceeded { .. }
            | RunEvent::StepFailed { .. }
            | RunEvent::StepRetryScheduled { .. }
            | RunEvent::StepSkipped { .. } => return,
        };
        history.interventions.push(intervention);
    }

    fn take_job(
        &mut self,
        job: JobId,
        domain_event: &JobEvent,
        event: &RecordedEvent,
        in_range: bool,
    ) {
        let step = self.step_of.get(&job).copied();
        let target = step.and_then(|step| name_of(&self.steps, step));
        let intervention = self.jobs.take((job, target), domain_event, event, in_range);
        if let Some(history) = &mut self.history {
            history.interventions.extend(intervention);
        }
    }

    fn finish(self) -> Option<RunHistory> {
        let mut history = self.history?;
        history.jobs = self.jobs.finish();
        let all = self.components.into_iter();
        history.components = all.filter_map(|(name, change)| change.finish(name)).collect();
        Some(history)
    }
}

fn name_of(steps: &[StepSpec], step: StepId) -> Option<String> {
    let spec = steps.iter().find(|spec| spec.step == step)?;
    Some(match &spec.target {
        Target::Sandbox { .. } => SANDBOX.to_owned(),
        Target::Component { name, .. } | Target::Action { name } => name.clone(),
    })
}

/// Returns the run that an install event belongs to. `None` if it belongs to no run.
fn of_install(domain_event: &InstallEvent) -> Option<RunId> {
    match domain_event {
        InstallEvent::RunAdmitted { run, .. }
        | InstallEvent::RunFinished { run, .. }
        | InstallEvent::ComponentReserved { run, .. }
        | InstallEvent::ComponentReleased { run, .. }
        | InstallEvent::SandboxReserved { run, .. }
        | InstallEvent::SandboxReleased { run, .. }
        | InstallEvent::SandboxApplyStarted { run, .. }
        | InstallEvent::SandboxApplyNotRun { run, .. }
        | InstallEvent::SandboxProvisioned { run, .. }
        | InstallEvent::SandboxDestroyed { run, .. }
        | InstallEvent::ComponentApplyStarted { run, .. }
        | InstallEvent::ComponentApplyNotRun { run, .. }
        | InstallEvent::ComponentDeployed { run, .. }
        | InstallEvent::ComponentDestroyed { run, .. }
        | InstallEvent::StateRecorded { run, .. }
        | InstallEvent::StateAwaited { run, .. }
        | InstallEvent::ActionCompleted { run, .. } => Some(*run),
        InstallEvent::Deprovisioned { run } => *run,
        InstallEvent::Created { .. }
        | InstallEvent::InputsChanged { .. }
        | InstallEvent::ConfigPinned { .. }
        | InstallEvent::AutoApproveChanged { .. }
        | InstallEvent::FirstProvisionAutoApproved { .. }
        | InstallEvent::ComponentDisabled { .. }
        | InstallEvent::ComponentEnabled { .. }
        | InstallEvent::StackOutputsReported { .. }
        | InstallEvent::StackOutputsSet { .. }
        | InstallEvent::StateAccepted { .. }
        | InstallEvent::StateArrived { .. }
        | InstallEvent::Recovered(_) => None,
    }
}
