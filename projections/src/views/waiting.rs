//! Explains in one sentence why a job or a step waits. The explanation is derived from rows, and no
//! code decides from it.
use std::collections::BTreeMap;

use domain::{
    build::{BuildSource, State as BuildState},
    decider::Timestamp,
    git::GitSource,
    ids::{BuildId, InstallId, JobId, RunId, RunnerId},
    install::Holder,
    run::{Operation, Step, StepState, Target},
    state_version::StateVersion,
};

use super::{
    builds, installs,
    jobs::{self, JobState},
    runners, runs,
};

#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// Code of the condition: `runner`, `slot`, `reservation`, `approval`, `dependency`, `build`,
    /// `preflight`, `plans`, `server`, `retry`, `state` or `resolution`.
    pub on: &'static str,
    /// Sentence for the user, with the required action if there is one.
    pub detail: String,
    /// Job to which `detail` refers.
    pub job: Option<JobId>,
    /// Run to which `detail` refers.
    pub run: Option<RunId>,
    /// Install to which `detail` refers.
    pub install: Option<InstallId>,
    /// Runner to which `detail` refers.
    pub runner: Option<RunnerId>,
}

/// State around a step, from which the reason is derived.
#[derive(Debug, Clone, Copy)]
pub struct WaitContext<'a> {
    pub run: &'a runs::Row,
    pub install: &'a installs::Row,
    pub jobs: &'a BTreeMap<JobId, jobs::Row>,
    /// Builds that the steps deploy.
    pub builds: &'a BTreeMap<BuildId, builds::Row>,
    pub runner: Option<JobRunner<'a>>,
}

#[derive(Debug, Clone, Copy)]
pub struct JobRunner<'a> {
    pub row: &'a runners::Row,
    /// Contact of the runner, if this server holds its session.
    pub contact: Option<Contact>,
}

/// Contact of a runner with the server that holds its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contact {
    /// True if a long poll is open or the last call is recent.
    pub online: bool,
    /// Time of the last call since the server acquired the session.
    pub last: Option<Timestamp>,
}

impl Waiting {
    fn of(on: &'static str, detail: impl Into<String>) -> Waiting {
        let (job, run, install, runner) = (None, None, None, None);
        Waiting { on, detail: detail.into(), job, run, install, runner }
    }
}

/// Returns the reason why a job waits. `runner` is the runner that may claim the job, and `held`
/// the number of other jobs that the runner has claimed.
pub fn of_job(job: &jobs::Row, runner: Option<JobRunner<'_>>, held: usize) -> Option<Waiting> {
    let contact = runner.and_then(|runner| runner.contact);
    let last = contact.and_then(|contact| contact.last).map(|at| domain::moment::text(&at));
    let runner = runner.map(|runner| runner.row);
    let on_runner = |detail: &str| {
        let runner = runner.map(|row| row.runner);
        Some(Waiting { runner, install: job.install(), ..Waiting::of("runner", detail) })
    };
    match job.state {
        JobState::Queued => match runner.map(runners::Row::state_name) {
            None if job.install().is_none() => on_runner(
                "no build runner has enrolled; `stead runners create-enrolment-token` gives the command that starts one",
            ),
            None => on_runner(
                "no runner has enrolled; run the enrolment command in the customer's account",
            ),
            Some("revoked") => on_runner("the runner was revoked; enrol another runner"),
            Some("disabled") => {
                on_runner("the runner is disabled; the party that disabled it must enable it")
            }
            Some("disconnected") => {
                on_runner("the runner is disconnected; start it or check its network")
            }
            Some("stopped") => on_runner("the runner was stopped; start it"),
            Some(_) if contact.is_some_and(|contact| !contact.online) => match last {
                Some(last) => on_runner(&format!(
                    "the runner has not called since {last}; start it or check its network"
                )),
                None => on_runner("the runner is disconnected; start it or check its network"),
            },
            Some("drained") => {
                on_runner("the runner is draining and accepts no jobs; resume the runner")
            }
            Some(_) if held > 0 => {
                let detail = format!(
                    "the runner has no free slot (other jobs: {held}); it accepts this job later"
                );
                let runner = runner.map(|row| row.runner);
                Some(Waiting { runner, ..Waiting::of("slot", detail) })
            }
            Some(_) => match last {
                Some(last) => on_runner(&format!(
                    "the job is offered to the runner and not claimed yet; last contact at {last}"
                )),
                None => on_runner("the job is offered to the runner and not claimed yet"),
            },
        },
        JobState::Disconnected => {
            on_runner("the runner is disconnected; its job may still be running")
        }
        JobState::OutcomeUnknown => {
            // The server cannot know what the host wrote last.
            let of_state = match job.work.kind.uses_state() {
                true => " and that `stead-runner state list` on its host shows no state to upload",
                false => "",
            };
            let detail = format!(
                "the outcome of the job is unknown; check its effects{of_state}, then resolve it: stead jobs resolve {} \
                 --resolution … --reason …",
                job.job
            );
            Some(Waiting { job: Some(job.job), ..Waiting::of("resolution", detail) })
        }
        JobState::Claimed
        | JobState::Running
        | JobState::Succeeded
        | JobState::Failed
        | JobState::Cancelled
        | JobState::Lost => None,
    }
}

/// Returns the reason why a step of a run waits.
pub fn of_step(step: &Step, context: WaitContext<'_>) -> Option<Waiting> {
    match &step.state {
        StepState::Waiting => of_waiting(step, context),
        StepState::AwaitingApproval { plan, expires_at } => {
            let (run, id) = (context.run.run, step.spec.step);
            let detail = format!(
                "a principal must approve plan {} before {}: stead runs approve {run} --step {id} --reason …",
                plan.digest,
                domain::moment::text(expires_at)
            );
            Some(Waiting { run: Some(run), ..Waiting::of("approval", detail) })
        }
        StepState::Planning { job }
        | StepState::Applying { job, .. }
        | StepState::Executing { job } => {
            let others = |row: &&jobs::Row| row.job != *job && row.held().is_some();
            let held = context.jobs.values().filter(others).count();
            of_job(context.jobs.get(job)?, context.runner, held)
        }
        StepState::RetryScheduled { not_before } => {
            let detail = format!(
                "the job of the step failed; retry {} of {} starts after {}",
                step.retries,
                step.spec.options.max_auto_retries,
                domain::moment::text(not_before)
            );
            Some(Waiting::of("retry", detail))
        }
        StepState::Approved { .. } if !context.run.state.preflight.allows_changes() => {
            of_preflight(context)
        }
        StepState::Approved { .. } if context.run.state.awaits_plans() => Some(of_plans()),
        StepState::Approved { .. } if awaited_state(step, context).is_some() => {
            awaited_state(step, context)
        }
        // The server continues such a step immediately. If it does not, the policies are delayed.
        StepState::Approved { .. } if context.run.state.outcome.is_none() => {
            let detail = "the plan is approved; the server queues its apply within seconds (if not, \
                          `stead projections list` shows the lag of the policies)";
            Some(Waiting::of("server", detail))
        }
        StepState::Approved { .. }
        | StepState::Succeeded { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => None,
    }
}

/// Returns the reason why changes of a run wait for its preflight.
fn of_preflight(context: WaitContext<'_>) -> Option<Waiting> {
    let job = context.run.state.preflight.running_job();
    let detail = "the preflight of the run must pass first";
    Some(Waiting { job, ..Waiting::of("preflight", detail) })
}

/// Returns the reason why changes of a run wait for its plans.
fn of_plans() -> Waiting {
    Waiting::of("plans", "the run first makes all plans that depend on none of its changes")
}

/// Returns the reason why the preflight of a run waits.
pub fn of_running_preflight(context: WaitContext<'_>) -> Option<Waiting> {
    let job = context.run.state.preflight.running_job()?;
    let others = |row: &&jobs::Row| row.job != job && row.held().is_some();
    let held = context.jobs.values().filter(others).count();
    of_job(context.jobs.get(&job)?, context.runner, held)
}

fn of_waiting(step: &Step, context: WaitContext<'_>) -> Option<Waiting> {
    let WaitContext { run, install, builds, .. } = context;
    if run.state.outcome.is_some() {
        return None;
    }
    let open: Vec<String> = step
        .spec
        .depends_on
        .iter()
        .filter_map(|id| run.state.step(*id))
        .filter(|needed| !matches!(needed.state, StepState::Succeeded { .. }))
        .map(|needed| name(&needed.spec.target).to_string())
        .collect();
    if !open.is_empty() {
        let detail = format!("{} must succeed first", open.join(", "));
        return Some(Waiting::of("dependency", detail));
    }
    if step.spec.operation == Operation::Execute && !run.state.preflight.allows_changes() {
        return of_preflight(context);
    }
    if step.spec.operation == Operation::Execute && run.state.awaits_plans() {
        return Some(of_plans());
    }
    let build = build(&step.spec.target).and_then(|build| builds.get(&build));
    if let Some((build, detail)) = build.and_then(|build| Some((build, unbuilt(build)?))) {
        return Some(Waiting { job: build.job, ..Waiting::of("build", detail) });
    }
    let held = |holder: &Holder, what: &str| {
        let detail = format!("{what} of the install is held by a step of run {}", holder.run);
        Waiting {
            run: Some(holder.run),
            install: Some(install.install),
            ..Waiting::of("reservation", detail)
        }
    };
    let state = &install.state;
    if let Some(waiting) = awaited_state(step, context) {
        return Some(waiting);
    }
    let other = |holder: &&Holder| holder.step != step.spec.step;
    match &step.spec.target {
        Target::Sandbox { .. } => {
            let is_check = step.spec.operation == Operation::Check;
            let mut holders = state.holders.iter().filter(|_| !is_check);
            let component = holders.find(|(_, holder)| other(holder));
            let sandbox = state.sandbox_holder.as_ref().filter(other);
            sandbox
                .map(|holder| held(holder, "the sandbox"))
                .or_else(|| component.map(|(name, holder)| held(holder, name)))
        }
        Target::Component { name, .. } => {
            let component = state.holders.get(name).filter(other);
            let sandbox = state.sandbox_holder.as_ref().filter(other);
            sandbox
                .map(|holder| held(holder, "the sandbox"))
                .or_else(|| component.map(|holder| held(holder, name)))
        }
        Target::Action { .. } => None,
    }
}

/// Returns the reason why a step waits for a state that only the runner's host has.
fn awaited_state(step: &Step, context: WaitContext<'_>) -> Option<Waiting> {
    let (install, name) = (context.install, name(&step.spec.target));
    let StateVersion { lineage, serial, .. } = install.state.awaited_states.get(name)?;
    let detail = format!(
        "only the runner's host has the newest state of {name}, serial {serial} of lineage {lineage}; start the runner there so \
         that it uploads the state; if the host is lost, accept a state that the server has: stead installs accept-state {} {name} \
         --lineage … --serial … --reason …; if the server rejects the upload or has no state, choose one on the runner's host: \
         stead-runner state resolve {name}",
        install.state.name
    );
    Some(Waiting { install: Some(install.install), ..Waiting::of("state", detail) })
}

pub fn name(target: &Target) -> &str {
    match target {
        Target::Sandbox { .. } => "sandbox",
        Target::Component { name, .. } | Target::Action { name } => name,
    }
}

fn build(target: &Target) -> Option<BuildId> {
    match target {
        Target::Sandbox { build } | Target::Component { build, .. } => Some(*build),
        Target::Action { .. } => None,
    }
}

fn unbuilt(build: &builds::Row) -> Option<String> {
    let name = &build.order.component_name;
    match &build.state {
        BuildState::NotCreated | BuildState::Requested => match &build.order.source {
            BuildSource::Bundle { .. } | BuildSource::Image(_) => {
                Some(format!("the build of {name} has no job yet"))
            }
            BuildSource::Git(GitSource { repo, reference, .. }) => Some(format!(
                "the build of {name} waits for the resolution of {repo} at {reference}"
            )),
        },
        BuildState::Building { job } => {
            Some(format!("the build of {name} is not finished; its job is {job}"))
        }
        BuildState::Failed { detail, .. } => {
            Some(format!("the build of {name} failed: {detail}; sync again or retry the build"))
        }
        BuildState::Succeeded { .. } => None,
    }
}
