//! Every waiting job and step states a reason.
use std::collections::{BTreeMap, BTreeSet};

use domain::{
    actor::Actor,
    build::{BuildEvent, BuildFailure, BuildRequest, BuildSource},
    decider::Timestamp,
    digest::Digest,
    ids::*,
    install::InstallEvent,
    job::{JobClass, JobEvent, JobKind, LossReason, Origin, Work},
    run::{Cause, Operation, RunEvent, RunKind, StepOptions, StepPlan, StepSpec, Target},
    runner::{Host, Identity, RunnerEvent, RunnerMode, Side},
};
use projections::{
    DomainEvent, Projection, RecordedEvent,
    views::{
        builds::{self, Builds},
        installs::{self, Installs},
        jobs::{self, Jobs},
        runners::{self, Runners},
        runs::{self, Runs},
        waiting::{Contact, JobRunner, WaitContext, Waiting, of_job, of_step},
    },
};
use ulid::Ulid;

const INSTALL: InstallId = InstallId(Ulid(1));
const RUN: RunId = RunId(Ulid(2));
const OTHER: RunId = RunId(Ulid(3));
const SANDBOX: StepId = StepId(Ulid(4));
const WEB: StepId = StepId(Ulid(5));
const JOB: JobId = JobId(Ulid(6));
const BUILD: BuildId = BuildId(Ulid(7));
const RUNNER: RunnerId = RunnerId(Ulid(8));
const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn digest(n: u8) -> Digest {
    format!("sha256:{n:064x}").parse().unwrap()
}

fn row<P: Projection>(domain_events: impl IntoIterator<Item = DomainEvent>) -> P::Row {
    let mut row = None;
    for (at, domain_event) in domain_events.into_iter().enumerate() {
        let position = at as u64 + 1;
        let event = RecordedEvent {
            position,
            sequence: position,
            at: NOW,
            actor: Actor::System,
            domain_event,
        };
        let key = P::keys(&event).pop().unwrap();
        row = P::apply(&key, row, &event);
    }
    row.unwrap()
}

fn install(later: Vec<InstallEvent>) -> installs::Row {
    let created = InstallEvent::Created {
        app: AppId(Ulid(9)),
        name: "acme".into(),
        config_version: 1,
        inputs: BTreeMap::new(),
        auto_approve: false,
    };
    let domain_events = [vec![created], later].concat();
    row::<Installs>(
        domain_events.into_iter().map(|domain_event| DomainEvent::Install(INSTALL, domain_event)),
    )
}

fn spec(step: StepId, target: Target, depends_on: Vec<StepId>) -> StepSpec {
    let options = StepOptions::default();
    StepSpec { step, target, operation: Operation::Apply, depends_on, fingerprint: None, options }
}

fn run(later: Vec<RunEvent>) -> runs::Row {
    let requested = RunEvent::Requested {
        install: INSTALL,
        kind: RunKind::Provision,
        cause: Cause::Requested,
        by: Actor::System,
        config_version: 1,
        reason: None,
        plan_all: false,
    };
    let component = ComponentId(Ulid(10));
    let web = Target::Component {
        component,
        name: "web".into(),
        build: BUILD,
        depends_on: BTreeSet::new(),
    };
    let steps = vec![
        spec(SANDBOX, Target::Sandbox { build: BUILD }, vec![]),
        spec(WEB, web, vec![SANDBOX]),
    ];
    let domain_events = [vec![requested, RunEvent::Planned { steps, position: 1 }], later].concat();
    row::<Runs>(domain_events.into_iter().map(|domain_event| DomainEvent::Run(RUN, domain_event)))
}

fn started(step: StepId) -> RunEvent {
    RunEvent::StepStarted { step, job: JOB }
}
fn done(step: StepId) -> RunEvent {
    RunEvent::StepSucceeded { step, noop: false }
}

fn job(later: Vec<JobEvent>) -> jobs::Row {
    let queued = JobEvent::Queued(Work {
        kind: JobKind::Plan,
        class: JobClass::Mutating,
        attempts: 1,
        manifest: digest(1),
        origin: Origin::Step { install: INSTALL, run: RUN, step: SANDBOX },
        deadline_ms: 1000,
        queue_ttl_ms: 1000,
    });
    let domain_events = [vec![queued], later].concat();
    row::<Jobs>(domain_events.into_iter().map(|domain_event| DomainEvent::Job(JOB, domain_event)))
}

fn claimed() -> JobEvent {
    JobEvent::Claimed {
        execution: ExecutionId(Ulid(11)),
        runner: RUNNER,
        session: SessionId(Ulid(12)),
        claim_id: "c".into(),
        attempt: 1,
        deadline: NOW,
    }
}

fn runner(later: Vec<RunnerEvent>) -> runners::Row {
    let enrolled = RunnerEvent::Enrolled(Identity {
        mode: RunnerMode::Install,
        install: Some(INSTALL),
        identity_key: "aa".into(),
        install_keys: None,
        version: "0.1.0".into(),
        host: Host { os: "linux".into(), arch: "x86_64".into(), hostname: None },
        enrolment: TokenId(Ulid(13)),
    });
    let domain_events = [vec![enrolled], later].concat();
    row::<Runners>(
        domain_events.into_iter().map(|domain_event| DomainEvent::Runner(RUNNER, domain_event)),
    )
}

fn build(later: Vec<BuildEvent>) -> builds::Row {
    let requested = BuildEvent::Requested(BuildRequest {
        app: AppId(Ulid(9)),
        component: ComponentId(Ulid(10)),
        component_name: "web".into(),
        config_version: 1,
        source: BuildSource::Bundle { digest: digest(2) },
        kind: "terraform_module".into(),
    });
    let domain_events = [vec![requested], later].concat();
    row::<Builds>(
        domain_events.into_iter().map(|domain_event| DomainEvent::Build(BUILD, domain_event)),
    )
}

fn why(step: StepId, run: &runs::Row, install: &installs::Row) -> Option<Waiting> {
    why_with(step, run, install, vec![], build(vec![succeeded()]))
}

#[test]
fn an_approved_step_waits_for_the_preflight_and_then_for_the_server() {
    let plan = domain::run::StepPlan {
        digest: digest(4),
        summary: digest(5),
        details: None,
        noop: false,
        add: 1,
        change: 0,
        destroy: 0,
    };
    let by = Actor::System;
    let mut approved = vec![
        started(SANDBOX),
        RunEvent::PlanProduced { step: SANDBOX, job: JOB, plan },
        RunEvent::ApprovalRequested { step: SANDBOX, digest: digest(4), expires_at: NOW },
        RunEvent::Approved { step: SANDBOX, digest: digest(4), by, reason: "ok".into() },
    ];
    let waiting = why(SANDBOX, &run(approved.clone()), &install(vec![])).unwrap();
    assert_eq!(waiting.on, "preflight");

    approved.push(RunEvent::PreflightStarted { job: JOB });
    approved.push(RunEvent::PreflightPassed { job: JOB, checks: vec![] });
    let waiting = why(SANDBOX, &run(approved), &install(vec![])).unwrap();
    assert_eq!(waiting.on, "server");
}

fn succeeded() -> BuildEvent {
    let repository = "shop/web".into();
    let artifact =
        domain::artifact::Artifact { repository, digest: digest(3), size_bytes: 1, upstream: None };
    BuildEvent::Succeeded { job: JOB, artifact }
}

fn why_with(
    step: StepId,
    run: &runs::Row,
    install: &installs::Row,
    jobs: Vec<jobs::Row>,
    build: builds::Row,
) -> Option<Waiting> {
    let jobs = jobs.into_iter().map(|row| (row.job, row)).collect();
    let builds = [(BUILD, build)].into();
    let runner = runner(vec![]);
    let context =
        WaitContext { run, install, jobs: &jobs, builds: &builds, runner: Some(awaited(&runner)) };
    of_step(run.state.step(step).unwrap(), context)
}

fn awaited(row: &runners::Row) -> JobRunner<'_> {
    JobRunner { row, contact: None }
}

fn on(waiting: Option<Waiting>) -> Option<&'static str> {
    waiting.map(|waiting| waiting.on)
}

#[test]
fn a_step_waits_for_its_dependencies() {
    let waiting = why(WEB, &run(vec![]), &install(vec![])).unwrap();
    assert_eq!((waiting.on, &*waiting.detail), ("dependency", "sandbox must succeed first"));
    assert_eq!(why(SANDBOX, &run(vec![]), &install(vec![])), None);
    assert_eq!(why(WEB, &run(vec![started(SANDBOX), done(SANDBOX)]), &install(vec![])), None);
}

#[test]
fn a_step_waits_for_its_build() {
    let (run, install) = (run(vec![]), install(vec![]));
    let detail = "exit 1".to_string();
    let failed = BuildEvent::Failed { job: Some(JOB), reason: BuildFailure::JobFailed, detail };
    for (later, text) in [
        (vec![], "has no job yet"),
        (vec![BuildEvent::JobQueued { job: JOB, commit: None }], "its job is job_"),
        (vec![failed], "failed: exit 1"),
    ] {
        let waiting = why_with(SANDBOX, &run, &install, vec![], build(later)).unwrap();
        assert_eq!(waiting.on, "build");
        assert!(waiting.detail.contains(text), "{}", waiting.detail);
    }
}

#[test]
fn a_step_waits_for_the_run_that_reserved_its_target() {
    let step = StepId(Ulid(99));
    let sandbox = InstallEvent::SandboxReserved { run: OTHER, step };
    let web = InstallEvent::ComponentReserved { name: "web".into(), run: OTHER, step };
    let ready = run(vec![started(SANDBOX), done(SANDBOX)]);
    for (step, run, held) in [
        (SANDBOX, run(vec![]), &sandbox),
        (SANDBOX, run(vec![]), &web),
        (WEB, ready.clone(), &sandbox),
        (WEB, ready.clone(), &web),
    ] {
        let waiting = why(step, &run, &install(vec![held.clone()])).unwrap();
        assert_eq!(
            (waiting.on, waiting.run, waiting.install),
            ("reservation", Some(OTHER), Some(INSTALL))
        );
    }
    let db = InstallEvent::ComponentReserved { name: "db".into(), run: OTHER, step };
    assert_eq!(why(WEB, &ready, &install(vec![db])), None);
}

#[test]
fn a_plan_waits_for_a_principal() {
    let plan = StepPlan {
        digest: digest(4),
        summary: digest(5),
        details: None,
        noop: false,
        add: 1,
        change: 0,
        destroy: 0,
    };
    let produced = RunEvent::PlanProduced { step: SANDBOX, job: JOB, plan };
    let approval =
        RunEvent::ApprovalRequested { step: SANDBOX, digest: digest(4), expires_at: NOW };
    let run = run(vec![started(SANDBOX), produced, approval]);
    assert_eq!(run.state_name(), "waiting_for_approval");
    let waiting = why(SANDBOX, &run, &install(vec![])).unwrap();
    assert_eq!((waiting.on, waiting.run), ("approval", Some(RUN)));
    assert!(waiting.detail.contains(&digest(4).to_string()), "{}", waiting.detail);
}

#[test]
fn a_running_step_waits_like_its_job() {
    let (run, install) = (run(vec![started(SANDBOX)]), install(vec![]));
    let succeeded = || build(vec![succeeded()]);
    let queued = why_with(SANDBOX, &run, &install, vec![job(vec![])], succeeded()).unwrap();
    assert_eq!((queued.on, queued.runner), ("runner", Some(RUNNER)));
    let working = job(vec![claimed()]);
    assert_eq!(why_with(SANDBOX, &run, &install, vec![working], succeeded()), None);
}

#[test]
fn a_job_waits_for_its_runner_a_slot_or_a_resolution() {
    let queued = job(vec![]);
    let disabled = RunnerEvent::Disabled {
        side: Side::Customer,
        by: Actor::Runner(RUNNER),
        reason: "audit".into(),
    };
    let silent = RunnerEvent::Disconnected { last_contact_at: NOW, stopped: false };
    let revoked = RunnerEvent::Revoked { by: Actor::System, reason: "stolen".into() };
    assert_eq!(on(of_job(&queued, None, 0)), Some("runner"));
    for domain_event in
        [disabled, silent, revoked, RunnerEvent::Drained { by: Actor::System, reason: None }]
    {
        let runner = runner(vec![domain_event]);
        assert_eq!(
            on(of_job(&queued, Some(awaited(&runner)), 3)),
            Some("runner"),
            "{}",
            runner.state_name()
        );
    }
    let active = runner(vec![]);
    assert_eq!(on(of_job(&queued, Some(awaited(&active)), 0)), Some("runner"));
    assert_eq!(on(of_job(&queued, Some(awaited(&active)), 3)), Some("slot"));

    let execution = ExecutionId(Ulid(11));
    let gone = JobEvent::Disconnected { execution };
    let doubt = JobEvent::OutcomeUnknown { execution, loss_reason: LossReason::DeadlinePassed };
    assert_eq!(on(of_job(&job(vec![claimed(), gone]), Some(awaited(&active)), 0)), Some("runner"));
    assert_eq!(
        on(of_job(&job(vec![claimed(), doubt]), Some(awaited(&active)), 0)),
        Some("resolution")
    );
    assert_eq!(on(of_job(&job(vec![claimed()]), Some(awaited(&active)), 0)), None);
}

#[test]
fn a_queued_job_shows_the_last_contact_of_its_runner() {
    let (queued, active) = (job(vec![]), runner(vec![]));
    let detail = |online, last| {
        let contact = Some(Contact { online, last });
        of_job(&queued, Some(JobRunner { row: &active, contact }), 0).unwrap().detail
    };
    let offered = "the job is offered to the runner and not claimed yet";
    assert_eq!(
        detail(true, Some(NOW)),
        format!("{offered}; last contact at 1970-01-01T00:00:00.000000Z")
    );
    assert_eq!(detail(true, None), offered);
    assert_eq!(
        detail(false, Some(NOW)),
        "the runner has not called since 1970-01-01T00:00:00.000000Z; start it or check its network"
    );
    let stopped = runner(vec![RunnerEvent::Disconnected { last_contact_at: NOW, stopped: true }]);
    assert_eq!(stopped.state_name(), "stopped");
    let waiting = of_job(&queued, Some(awaited(&stopped)), 0).unwrap();
    assert_eq!(waiting.detail, "the runner was stopped; start it");
}
