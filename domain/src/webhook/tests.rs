use ulid::Ulid;

use super::*;
use crate::{
    actor::Actor,
    ids::{InstallId, JobId, RunId, RunnerId, StepId},
    recorded::DomainEvent,
    run::{Cause, Outcome, Request, Run, RunEvent, RunKind},
    runner::RunnerEvent,
    testing::{NOW, examples, given, transitions},
};

fn settings(endpoint: u128) -> WebhookSettings {
    WebhookSettings {
        endpoint: EndpointId(Ulid(endpoint)),
        origin: "https://hooks.example.com".into(),
        topics: [Topic::ApprovalRequested, Topic::RunFailed].into(),
        format: Format::Standard,
    }
}

fn configured(endpoint: u128) -> WebhookEvent {
    WebhookEvent::Configured(settings(endpoint))
}

fn configure(endpoint: u128) -> WebhookCommand {
    WebhookCommand::Configure(settings(endpoint))
}

#[test]
fn settings_are_created_replaced_and_kept() {
    given::<Webhook>([]).when(configure(1)).then([configured(1)]);
    given::<Webhook>([configured(1)]).when(configure(1)).then_nothing();
    given::<Webhook>([configured(1)]).when(configure(2)).then([configured(2)]);
    let deleted = [configured(1), WebhookEvent::Deleted {}];
    given::<Webhook>(deleted).when(configure(1)).then([configured(1)]);
}

#[test]
fn a_webhook_without_topics_is_rejected() {
    let none = WebhookSettings { topics: BTreeSet::new(), ..settings(1) };
    let command = WebhookCommand::Configure(none);
    given::<Webhook>([]).when(command).then_rejected(WebhookError::NoTopics);
}

#[test]
fn only_an_existing_webhook_is_deleted() {
    let delete = || WebhookCommand::Delete;
    given::<Webhook>([]).when(delete()).then_rejected(WebhookError::Missing);
    given::<Webhook>([configured(1)]).when(delete()).then([WebhookEvent::Deleted {}]);
    let deleted = [configured(1), WebhookEvent::Deleted {}];
    given::<Webhook>(deleted).when(delete()).then_rejected(WebhookError::Missing);
}

#[test]
fn every_topic_has_one_name() {
    for topic in Topic::ALL {
        assert_eq!(topic.name().parse(), Ok(topic));
        assert_eq!(serde_json::to_value(topic).unwrap(), topic.name());
    }
    let error = "run.started".parse::<Topic>().unwrap_err().to_string();
    assert!(
        error.starts_with(r#""run.started" is not a topic: use one of run.approval_requested, "#),
        "{error}"
    );
}

#[test]
fn events_belong_to_topics() {
    let (run, step, runner) = (RunId(Ulid(1)), StepId(Ulid(2)), RunnerId(Ulid(3)));
    let digest: crate::digest::Digest = format!("sha256:{:064x}", 1).parse().unwrap();
    let requested = RunEvent::ApprovalRequested { step, digest, expires_at: NOW };
    assert_eq!(
        Notice::of(&DomainEvent::Run(run, requested)),
        Some(Notice::Of(Topic::ApprovalRequested, About::Step(run, step)))
    );
    let disconnected = |stopped| {
        DomainEvent::Runner(runner, RunnerEvent::Disconnected { last_contact_at: NOW, stopped })
    };
    let lost = Some(Notice::Of(Topic::RunnerDisconnected, About::Runner(runner)));
    assert_eq!(Notice::of(&disconnected(false)), lost);
    assert_eq!(Notice::of(&disconnected(true)), None, "the runner announced its shutdown");
    let finished = RunEvent::Finished { outcome: Outcome::Failed };
    assert_eq!(
        Notice::of(&DomainEvent::Run(run, finished)),
        Some(Notice::Finished(run, Outcome::Failed))
    );
    let preflight = RunEvent::PreflightStarted { job: JobId(Ulid(4)) };
    assert_eq!(Notice::of(&DomainEvent::Run(run, preflight)), None);
}

#[test]
fn the_topic_of_a_finished_run_depends_on_kind_and_outcome() {
    let run = |kind| {
        let (install, by) = (InstallId(Ulid(5)), Actor::System);
        let cause = Cause::Requested;
        let request =
            Request { install, kind, cause, by, config_version: 1, reason: None, plan_all: false };
        Run { request: Some(request), ..Run::default() }
    };
    let deploy = run(RunKind::Deploy);
    assert_eq!(Notice::of_finished(&deploy, Outcome::Succeeded), Some(Topic::RunSucceeded));
    for outcome in [Outcome::Failed, Outcome::Cancelled, Outcome::Denied, Outcome::Expired] {
        assert_eq!(Notice::of_finished(&deploy, outcome), Some(Topic::RunFailed));
    }
    let check = run(RunKind::Drift);
    assert_eq!(Notice::of_finished(&check, Outcome::Succeeded), None, "no drift");
    assert_eq!(Notice::of_finished(&check, Outcome::Failed), Some(Topic::RunFailed));
}

#[test]
fn every_event_has_an_example() {
    examples::<Webhook>(configured(1), |event| match event {
        WebhookEvent::Configured(_) => Some(WebhookEvent::Deleted {}),
        WebhookEvent::Deleted {} => None,
    });
}

#[test]
fn transitions_match_the_golden_table() {
    let deleted = vec![configured(1), WebhookEvent::Deleted {}];
    transitions::<Webhook>(
        vec![("new", vec![]), ("configured", vec![configured(1)]), ("deleted", deleted)],
        vec![
            ("configure: same", configure(1)),
            ("configure: other endpoint", configure(2)),
            ("delete", WebhookCommand::Delete),
        ],
    );
}
