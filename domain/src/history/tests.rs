use std::collections::{BTreeMap, BTreeSet};

use crate::{
    actor::Actor,
    decider::Timestamp,
    digest::Digest,
    ids::{
        AppId, BuildId, ComponentId, ExecutionId, InstallId, JobId, PrincipalId, RunId, RunnerId,
        SessionId, StepId,
    },
    install::{InstallEvent, Outputs},
    job::{self, FailureReason, JobClass, JobEvent, JobKind, Origin, Work},
    run::{self, Cause, Operation, RunEvent, RunKind, StepSpec, Target},
};
use ulid::Ulid;

use super::*;

fn run(n: u128) -> RunId {
    RunId(Ulid(n))
}
fn step() -> StepId {
    StepId(Ulid(7))
}
fn job(n: u128) -> JobId {
    JobId(Ulid(n))
}
fn build(n: u128) -> BuildId {
    BuildId(Ulid(n))
}
fn digest() -> Digest {
    format!("sha256:{:064x}", 7).parse().unwrap()
}
fn ann() -> Actor {
    Actor::Principal(PrincipalId(Ulid(1)))
}
fn bo() -> Actor {
    Actor::Principal(PrincipalId(Ulid(2)))
}

/// Records these events from position 1, one per second.
fn log(domain_events: Vec<DomainEvent>) -> Vec<RecordedEvent> {
    let recorded = |(position, domain_event): (u64, DomainEvent)| RecordedEvent {
        position,
        sequence: position,
        at: Timestamp::from_timestamp(position.cast_signed(), 0).unwrap(),
        actor: ann(),
        domain_event,
    };
    (1..).zip(domain_events).map(recorded).collect()
}

fn on_install(domain_event: InstallEvent) -> DomainEvent {
    DomainEvent::Install(InstallId(Ulid(1)), domain_event)
}

fn created() -> DomainEvent {
    on_install(InstallEvent::Created {
        app: AppId(Ulid(1)),
        name: "acme".into(),
        config_version: 1,
        inputs: BTreeMap::new(),
        auto_approve: false,
    })
}

fn admitted(n: u128) -> DomainEvent {
    let (kind, names) = (RunKind::Upgrade, BTreeSet::new());
    on_install(InstallEvent::RunAdmitted { run: run(n), kind, components: names })
}

fn requested(n: u128) -> [DomainEvent; 2] {
    let target = Target::Component {
        component: ComponentId(Ulid(1)),
        name: "api".into(),
        build: build(2),
        depends_on: BTreeSet::new(),
    };
    let spec = StepSpec {
        step: step(),
        target,
        operation: Operation::Apply,
        depends_on: vec![],
        fingerprint: None,
        options: Default::default(),
    };
    [
        DomainEvent::Run(
            run(n),
            RunEvent::Requested {
                install: InstallId(Ulid(1)),
                kind: RunKind::Upgrade,
                cause: Cause::Requested,
                by: ann(),
                config_version: 2,
                reason: Some("CHG-1204".into()),
                plan_all: false,
            },
        ),
        DomainEvent::Run(run(n), RunEvent::Planned { steps: vec![spec], position: 1 }),
    ]
}

/// Returns the events of one job of a run's step, from its start to its end.
fn worked(n: u128, id: u128, kind: JobKind, fails: bool) -> Vec<DomainEvent> {
    let origin = Origin::Step { install: InstallId(Ulid(1)), run: run(n), step: step() };
    let work = Work {
        kind,
        class: JobClass::Mutating,
        attempts: 3,
        manifest: digest(),
        origin,
        deadline_ms: 1,
        queue_ttl_ms: 1,
    };
    let execution = ExecutionId(Ulid(id));
    let claimed = JobEvent::Claimed {
        execution,
        runner: RunnerId(Ulid(1)),
        session: SessionId(Ulid(1)),
        claim_id: "c".into(),
        attempt: 2,
        deadline: Timestamp::UNIX_EPOCH,
    };
    let ended = match fails {
        false => JobEvent::Succeeded {
            execution,
            seq: Some(2),
            exit_code: Some(0),
            signed: None,
            not_ended: vec![],
        },
        true => JobEvent::Failed {
            execution: Some(execution),
            seq: Some(2),
            reason: FailureReason::ExitCode,
            detail: "the child ended with 1".into(),
            exit_code: Some(1),
            signal: None,
            signed: None,
            not_ended: vec![],
        },
    };
    let began = match kind {
        JobKind::Apply | JobKind::Sync => RunEvent::ApplyStarted { step: step(), job: job(id) },
        JobKind::Preflight => RunEvent::PreflightStarted { job: job(id) },
        JobKind::Resolve | JobKind::Build | JobKind::Plan | JobKind::Action => {
            RunEvent::StepStarted { step: step(), job: job(id) }
        }
    };
    let of_job = [JobEvent::Queued(work), claimed, ended]
        .map(|domain_event| DomainEvent::Job(job(id), domain_event));
    [vec![DomainEvent::Run(run(n), began)], of_job.into()].concat()
}

fn approved(n: u128) -> DomainEvent {
    let (step, digest, by, reason) = (step(), digest(), bo(), "read it".to_owned());
    DomainEvent::Run(run(n), RunEvent::Approved { step, digest, by, reason })
}

fn changing(n: u128, version: u32) -> DomainEvent {
    on_install(InstallEvent::ComponentApplyStarted {
        name: "api".into(),
        component: ComponentId(Ulid(1)),
        run: run(n),
        step: step(),
        build: build(version.into()),
        config_version: version,
        depends_on: BTreeSet::new(),
    })
}

fn deployed(n: u128, version: u32) -> DomainEvent {
    on_install(InstallEvent::ComponentDeployed {
        name: "api".into(),
        component: ComponentId(Ulid(1)),
        run: run(n),
        step: step(),
        build: build(version.into()),
        config_version: version,
        fingerprint: digest(),
        depends_on: BTreeSet::new(),
        outputs: Outputs::new(),
    })
}

fn finished(n: u128) -> [DomainEvent; 2] {
    let outcome = run::Outcome::Succeeded;
    [
        DomainEvent::Run(run(n), RunEvent::Finished { outcome }),
        on_install(InstallEvent::RunFinished { run: run(n), outcome }),
    ]
}

fn version(n: u32) -> Option<Version> {
    Some(Version { config_version: n, build: build(n.into()) })
}

/// A complete upgrade of the component that the first run deployed.
fn upgrade() -> Vec<RecordedEvent> {
    let before = [vec![created(), admitted(1)], requested(1).into(), vec![deployed(1, 1)]];
    let second_run = [finished(1).to_vec(), vec![admitted(2)], requested(2).into()];
    let planned = [worked(2, 21, JobKind::Plan, false), vec![approved(2)]];
    let applied =
        [vec![changing(2, 2)], worked(2, 22, JobKind::Apply, false), vec![deployed(2, 2)]];
    let all = [before.concat(), second_run.concat(), planned.concat(), applied.concat()];
    log([all.concat(), finished(2).to_vec()].concat())
}

/// Returns the history after a position, built from the install at that position.
fn history_from(from: u64, events: &[RecordedEvent]) -> History {
    let mut install = Install::default();
    for event in events.iter().filter(|event| event.position <= from) {
        if let DomainEvent::Install(_, domain_event) = &event.domain_event {
            crate::decider::Decider::evolve(&mut install, domain_event.clone());
        }
    }
    // As the crate `projections` does, takes the events of the install only within the range, and
    // all other events from the start.
    let read = |event: &&RecordedEvent| event.position > from || event.aggregate() != "install";
    let events: Vec<RecordedEvent> = events.iter().filter(read).cloned().collect();
    build_history(&install, from, &events)
}

#[test]
fn a_run_lists_request_approval_jobs_and_component_changes() {
    let events = upgrade();
    let before = events.iter().position(|event| event.stream().aggregate_id == run(2).to_string());
    let history = history_from(before.unwrap() as u64 - 1, &events);
    assert_eq!((history.runs.len(), history.other_events), (1, vec![]));
    let upgrade = &history.runs[0];
    let request = upgrade.request.as_ref().unwrap();
    assert_eq!((upgrade.run, &request.by, request.config_version), (run(2), &ann(), 2));
    assert_eq!(request.reason.as_deref(), Some("CHG-1204"));
    assert_eq!(upgrade.outcome, Some(run::Outcome::Succeeded));
    let approval = &upgrade.interventions[0];
    assert_eq!(
        (approval.kind, approval.target.as_deref(), &approval.by),
        (InterventionKind::Approved, Some("api"), &bo())
    );
    assert_eq!((&approval.digest, approval.reason.as_deref()), (&Some(digest()), Some("read it")));
    let jobs: Vec<_> = upgrade
        .jobs
        .iter()
        .map(|job| (job.kind, job.target.as_deref(), job.outcome, job.attempts))
        .collect();
    let succeeded = Some(job::Outcome::Succeeded);
    assert_eq!(
        jobs,
        [
            (Some(JobKind::Plan), Some("api"), succeeded, 2),
            (Some(JobKind::Apply), Some("api"), succeeded, 2)
        ]
    );
    let api = ComponentHistory {
        name: "api".into(),
        before: version(1),
        after: version(2),
        incomplete: false,
    };
    assert_eq!(upgrade.components, [api]);
}

#[test]
fn an_approval_before_the_range_belongs_to_a_later_job() {
    let events = upgrade();
    let at = |of: &str| events.iter().rfind(|event| event.event_type() == of).unwrap().position;
    // The history begins after the apply was started.
    let history = history_from(at("install.component_apply_started"), &events);
    let upgrade = &history.runs[0];
    assert_eq!(upgrade.interventions[0].kind, InterventionKind::Approved);
    // The plan job ended before the range, so it is not listed.
    let jobs: Vec<_> = upgrade.jobs.iter().map(|job| job.kind).collect();
    assert_eq!(jobs, [Some(JobKind::Apply)]);
    assert_eq!(
        (&upgrade.components[0].before, &upgrade.components[0].after),
        (&version(1), &version(2))
    );
    let first = upgrade.events[0].position;
    assert!(first > at("install.component_apply_started"), "{first}");
}

#[test]
fn a_run_that_ended_before_the_range_is_not_listed() {
    let events = upgrade();
    assert_eq!(history_from(events.len() as u64, &events).runs, []);
    let history = history_from(0, &events);
    assert_eq!(
        history.runs.iter().map(|history| history.run).collect::<Vec<_>>(),
        [run(1), run(2)]
    );
    // Before the first run, the component did not exist.
    assert_eq!(
        (&history.runs[0].components[0].before, &history.runs[0].components[0].after),
        (&None, &version(1))
    );
    assert_eq!(
        history.other_events.iter().map(|event| event.event_type).collect::<Vec<_>>(),
        ["install.created"]
    );
}

#[test]
fn a_failed_apply_leaves_its_component_incomplete_and_an_apply_that_never_ran_changes_nothing() {
    let failed = |end: Vec<DomainEvent>| {
        let domain_events = [
            vec![created(), admitted(1)],
            requested(1).into(),
            vec![deployed(1, 1), changing(1, 2)],
        ];
        log([domain_events.concat(), worked(1, 11, JobKind::Apply, true), end].concat())
    };
    let history = history_from(1, &failed(vec![])).runs.remove(0);
    assert!(history.components[0].incomplete);
    assert_eq!(history.jobs[0].detail.as_deref(), Some("the child ended with 1"));
    let not_run = || {
        on_install(InstallEvent::ComponentApplyNotRun {
            name: "api".into(),
            component: ComponentId(Ulid(1)),
            run: run(1),
            step: step(),
        })
    };
    let events = failed(vec![not_run()]);
    // The run deployed version 1 before the apply of version 2, which never ran.
    let change = history_from(1, &events).runs.remove(0).components.remove(0);
    assert_eq!((change.before, change.after, change.incomplete), (None, version(1), false));
    // The history begins before the apply was started. The apply changed nothing.
    let began = events.iter().find(|event| event.event_type() == "install.component_apply_started");
    assert_eq!(history_from(began.unwrap().position - 1, &events).runs[0].components, []);
    // The history begins after an apply that failed. A second apply never ran, so the first one
    // counts.
    let retry = [vec![changing(1, 2)], worked(1, 12, JobKind::Apply, true), vec![not_run()]];
    let events = failed(retry.concat());
    let first_end = events.iter().find(|event| event.event_type() == "job.failed").unwrap();
    assert!(history_from(first_end.position, &events).runs[0].components[0].incomplete);
}

#[test]
fn an_event_outside_any_run_has_its_reason() {
    let changed = on_install(InstallEvent::ConfigPinned {
        config_version: 2,
        by: ann(),
        reason: Some("CHG-1204".into()),
    });
    let history = history_from(1, &log(vec![created(), changed]));
    let other = &history.other_events[0];
    assert_eq!(
        (other.event_type, other.reason.as_deref()),
        ("install.config_pinned", Some("CHG-1204"))
    );
    assert_eq!((other.position, &other.actor), (2, &ann()));
}
