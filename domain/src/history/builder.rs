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

/// Run that an install admitted.
pub fn admitted_run(event: &RecordedEvent) -> Option<RunId> {
    let DomainEvent::Install(_, InstallEvent::RunAdmitted { run, .. }) = &event.fact else {
        return None;
    };
    Some(*run)
}

/// Job that a step of a run started.
pub fn started_job(event: &RecordedEvent) -> Option<JobId> {
    let DomainEvent::Run(_, RunEvent::StepStarted { job, .. } | RunEvent::ApplyStarted { job, .. }) =
        &event.fact
    else {
        return None;
    };
    Some(*job)
}

/// Summary of an event.
pub fn summary(event: &RecordedEvent) -> EventSummary {
    EventSummary {
        position: event.position,
        at: event.at,
        event_type: event.event_type(),
        stream: event.stream().to_string(),
        actor: event.actor.clone(),
        reason: reason(&event.fact),
    }
}

/// Builds the history from events in the order of their positions. Events up to `from` only provide
/// context. `before` is the install at `from`.
pub fn build_history(before: &Install, from: u64, events: &[RecordedEvent]) -> History {
    let mut story = HistoryBuilder { install: before.clone(), ..HistoryBuilder::default() };
    for event in events {
        story.take(event, event.position > from);
    }
    let happened = story.runs.into_values().filter(|told| told.happened);
    let mut runs: Vec<RunHistory> = happened.filter_map(RunBuilder::finish).collect();
    runs.sort_by_key(|told| (told.requested_at, told.run));
    History { runs, other_events: story.others, complete_through: 0 }
}

#[derive(Default)]
struct HistoryBuilder {
    install: Install,
    runs: BTreeMap<RunId, RunBuilder>,
    /// Run of each job.
    of_job: HashMap<JobId, RunId>,
    others: Vec<EventSummary>,
}

#[derive(Default)]
struct RunBuilder {
    history: Option<RunHistory>,
    steps: Vec<StepSpec>,
    jobs: Jobs,
    /// Step of each job.
    step_of: HashMap<JobId, StepId>,
    components: BTreeMap<String, ComponentChange>,
    happened: bool,
}

impl HistoryBuilder {
    fn take(&mut self, event: &RecordedEvent, between: bool) {
        let run = match &event.fact {
            DomainEvent::Install(_, fact) => {
                let run = of_install(fact);
                self.change(run, fact);
                run
            }
            DomainEvent::Run(run, fact) => {
                let told = self.told(*run);
                told.take(fact, event);
                if let Some(job) = started_job(event) {
                    self.of_job.insert(job, *run);
                }
                Some(*run)
            }
            DomainEvent::Job(id, fact) => {
                if let JobEvent::Queued(work) = fact
                    && let Origin::Step { run, .. } = work.origin
                {
                    self.of_job.insert(*id, run);
                }
                let run = self.of_job.get(id).copied();
                if let Some(run) = run {
                    self.told(run).take_job(*id, fact, event, between);
                }
                run
            }
            DomainEvent::Access(..)
            | DomainEvent::App(..)
            | DomainEvent::Build(..)
            | DomainEvent::Component(..)
            | DomainEvent::Enrolment(..)
            | DomainEvent::Name(..)
            | DomainEvent::Runner(..)
            | DomainEvent::Subject(..) => None,
        };
        if !between {
            return;
        }
        match run {
            Some(run) => {
                let told = self.told(run);
                told.happened = true;
                told.history(run).events.push(summary(event));
            }
            None => self.others.push(summary(event)),
        }
    }

    /// Applies an event to the install, and records the change of a component relative to its
    /// version before the run.
    fn change(&mut self, run: Option<RunId>, fact: &InstallEvent) {
        let Some((run, name)) = run.zip(changed_component(fact)) else {
            self.install.evolve(fact.clone());
            return;
        };
        let before = ComponentChange::settled(&self.install, name, run);
        self.install.evolve(fact.clone());
        let known = self.told(run).components.remove(name.unwrap_or(SANDBOX));
        let touched = known.unwrap_or(before).with(&self.install, name, fact);
        self.told(run).components.insert(name.unwrap_or(SANDBOX).to_owned(), touched);
    }

    fn told(&mut self, run: RunId) -> &mut RunBuilder {
        let told = self.runs.entry(run).or_default();
        told.history(run);
        told
    }
}

/// Name of the sandbox among the components, as in the other contracts.
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

    fn take(&mut self, fact: &RunEvent, event: &RecordedEvent) {
        let Some(history) = &mut self.history else { return };
        let word =
            |kind, step: Option<StepId>, digest, by: &_, reason: Option<&String>| Intervention {
                kind,
                target: step.and_then(|step| name_of(&self.steps, step)),
                digest,
                by: Clone::clone(by),
                reason: reason.cloned(),
                at: event.at,
                position: event.position,
            };
        let word = match fact {
            RunEvent::Requested { install, kind, cause, by, config_version, reason } => {
                let (install, kind, config_version) = (*install, *kind, *config_version);
                let (cause, by, reason) = (cause.clone(), by.clone(), reason.clone());
                history.request =
                    Some(Request { install, kind, cause, by, config_version, reason });
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
            RunEvent::Approved { step, digest, by, reason } => word(
                InterventionKind::Approved,
                Some(*step),
                Some(digest.clone()),
                by,
                Some(reason),
            ),
            RunEvent::Denied { step, digest, by, reason } => {
                word(InterventionKind::Denied, Some(*step), Some(digest.clone()), by, Some(reason))
            }
            RunEvent::ApprovalExpired { step, digest } => word(
                InterventionKind::Expired,
                Some(*step),
                Some(digest.clone()),
                &event.actor,
                None,
            ),
            RunEvent::StepRetried { step, by, reason } => {
                word(InterventionKind::Retried, Some(*step), None, by, reason.as_ref())
            }
            RunEvent::CancelRequested { by, reason, .. } => {
                word(InterventionKind::CancelRequested, None, None, by, Some(reason))
            }
            RunEvent::PlanProduced { .. }
            | RunEvent::ApprovalRequested { .. }
            | RunEvent::PlanInvalidated { .. }
            | RunEvent::StepSucceeded { .. }
            | RunEvent::StepFailed { .. }
            | RunEvent::StepRetryScheduled { .. }
            | RunEvent::StepSkipped { .. } => return,
        };
        history.interventions.push(word);
    }

    fn take_job(&mut self, job: JobId, fact: &JobEvent, event: &RecordedEvent, between: bool) {
        let step = self.step_of.get(&job).copied();
        let of = step.and_then(|step| name_of(&self.steps, step));
        let word = self.jobs.take((job, of), fact, event, between);
        if let Some(history) = &mut self.history {
            history.interventions.extend(word);
        }
    }

    fn finish(self) -> Option<RunHistory> {
        let mut history = self.history?;
        history.jobs = self.jobs.told();
        let all = self.components.into_iter();
        history.components = all.filter_map(|(name, touched)| touched.told(name)).collect();
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

/// Run that changed the install.
fn of_install(fact: &InstallEvent) -> Option<RunId> {
    match fact {
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
        | InstallEvent::StateAccepted { .. } => None,
    }
}
