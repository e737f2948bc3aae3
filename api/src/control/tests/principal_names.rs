//! Approvals and denials, with the names of principals and the digests of plans.
use std::{collections::BTreeSet, time::Duration};

use cli::client::Client;
use domain::{
    actor::Actor,
    decider::Timestamp,
    digest::Digest,
    ids::{BuildId, ComponentId, InstallId, JobId, PrincipalId, RunId, RunnerId, StepId},
    install::{Install, InstallCommand, Resource},
    run::{
        Approval, Cause, Operation, Request, Run, RunCommand, RunKind, StepPlan, StepSpec, Target,
    },
};
use event_log::Meta;
use schemas::control::{
    PageQuery,
    audit::EventsQuery,
    runs::{ApproveRun, DenyRun, RunsQuery},
    tokens::{CreateToken, RenamePrincipal, Role},
};
use ulid::Ulid;

use super::{client, rejection, with_install};
use crate::{auth::names, execute::Call, server::testing::Started};

fn digest(n: u8) -> Digest {
    format!("sha256:{n:064x}").parse().unwrap()
}

/// Commands for a run with one step, up to the plan that waits for an approval.
pub(super) fn until_approval(
    request: Request,
    step: StepId,
    expires_at: Timestamp,
) -> Vec<RunCommand> {
    let (component, build) = (ComponentId(Ulid::new()), BuildId(Ulid::new()));
    let target =
        Target::Component { component, name: "base".into(), build, depends_on: BTreeSet::new() };
    let (operation, depends_on, fingerprint) = (Operation::Apply, vec![], None);
    let steps = vec![StepSpec {
        step,
        target,
        operation,
        depends_on,
        fingerprint,
        options: Default::default(),
    }];
    let (job, preflight) = (JobId(Ulid::new()), JobId(Ulid::new()));
    let (digest, summary) = (digest(1), digest(2));
    let plan =
        StepPlan { digest, summary, details: None, noop: false, add: 1, change: 0, destroy: 0 };
    let approval = Approval::Principal { expires_at };
    vec![
        RunCommand::Request { request, steps, position: 1 },
        RunCommand::StartPreflight { job: preflight },
        RunCommand::RecordChecks { job: preflight, checks: vec![] },
        RunCommand::StartStep { step, job },
        RunCommand::RecordPlan { job, plan, approval },
    ]
}

/// Run of this principal with one step, whose plan waits for approval.
async fn plan_waiting_for_approval(
    started: &Started,
    install: InstallId,
    by: PrincipalId,
) -> (RunId, StepId) {
    let (run, step) = (RunId(Ulid::new()), StepId(Ulid::new()));
    let expires_at = started.app().now() + chrono::TimeDelta::days(7);
    let call = Call::of(Meta::new(Actor::System, Ulid::new().to_string()));
    let done = started.app().engine.transact(&call, move |unit| {
        Box::pin(async move {
            let (runner, outputs, replaces) = (RunnerId(Ulid::new()), Default::default(), None);
            let (kind, components) = (RunKind::Upgrade, BTreeSet::from(["base".to_owned()]));
            let resource = Resource::Component("base".into());
            for command in [
                InstallCommand::ReportStackOutputs { runner, outputs, replaces },
                InstallCommand::AdmitRun { run, kind, components },
                InstallCommand::Reserve { resource, run, step },
            ] {
                unit.handle::<Install>(install, command).await?;
            }
            let (cause, by) = (Cause::Requested, Actor::Principal(by));
            let (config_version, reason, plan_all) = (2, None, false);
            let request = Request { install, kind, cause, by, config_version, reason, plan_all };
            for command in until_approval(request, step, expires_at) {
                unit.handle::<Run>(run, command).await?;
            }
            Ok(())
        })
    });
    done.await.unwrap();
    // No client knows this position, so no request waits for it.
    let app = started.app();
    app.projections.wait_for(app.log().position(), Duration::from_secs(10)).await.unwrap();
    (run, step)
}

async fn approver(started: &Started, owner: &Client, name: &str) -> (PrincipalId, Client) {
    let request = CreateToken { name: Some(name.into()), role: Role::Approver, expires_in_s: None };
    let created = owner.create_token(&request).await.unwrap();
    (created.principal, client(started, &created.token.unwrap()))
}

#[tokio::test]
async fn principals_have_names_in_responses_but_not_in_the_log() {
    let (started, owner, created) = with_install().await;
    let me = owner.whoami().await.unwrap();
    assert_eq!(me.name.as_deref(), Some("owner"), "name of the first owner");
    let (ann, as_ann) = approver(&started, &owner, "Ann Lee").await;
    assert_eq!(as_ann.whoami().await.unwrap().name.as_deref(), Some("Ann Lee"));
    let all = owner.tokens(&PageQuery::default()).await.unwrap().items;
    assert!(all.iter().any(|t| t.principal == ann && t.name.as_deref() == Some("Ann Lee")));

    let (run, step) = plan_waiting_for_approval(&started, created.id, me.principal).await;
    let approval = ApproveRun { step, digest: digest(1), reason: "read it".into() };
    as_ann.approve(run, &approval).await.unwrap();
    let response = as_ann.run(run).await.unwrap();
    assert_eq!((response.run.kind.as_str(), response.run.config_version), ("upgrade", Some(2)));
    assert_eq!(response.run.requested_by_name.as_deref(), Some("owner"));
    let first_decision = response.dag[0].decision.as_ref().unwrap();
    assert_eq!(
        (first_decision.by.as_str(), first_decision.by_name.as_deref()),
        (&*ann.to_string(), Some("Ann Lee"))
    );
    let listed = owner.runs(&RunsQuery::default()).await.unwrap().items;
    assert_eq!(listed[0].requested_by_name.as_deref(), Some("owner"));
    let versions = owner.versions("shop", &PageQuery::default()).await.unwrap().items;
    assert_eq!(versions[0].published_by_name.as_deref(), Some("owner"));

    // An auditor sees the name next to the id. Exports and proofs have only the id.
    let which = EventsQuery { event_type: Some("run.approved".into()), ..Default::default() };
    let event = owner.events(&which).await.unwrap().items.remove(0);
    assert_eq!((&event.actor, event.actor_name.as_deref()), (&ann.to_string(), Some("Ann Lee")));
    let export = owner.export(&EventsQuery::default()).await.unwrap().text().await.unwrap();
    assert!(export.contains(&ann.to_string()) && !export.contains("Ann Lee"));

    // A new name also applies to earlier actions. Then the name is removed.
    let name = |name: Option<&str>| RenamePrincipal { name: name.map(str::to_owned) };
    assert!(owner.name_principal(ann, &name(Some("Ann Kim"))).await.unwrap().changed);
    assert!(!owner.name_principal(ann, &name(Some("Ann Kim"))).await.unwrap().changed);
    let by = async || owner.run(run).await.unwrap().dag[0].decision.clone().unwrap().by_name;
    assert_eq!(by().await.as_deref(), Some("Ann Kim"));
    assert!(owner.name_principal(ann, &name(None)).await.unwrap().changed);
    assert_eq!(by().await, None);
    assert_eq!(rejection(as_ann.name_principal(ann, &name(Some("x"))).await).0, 403);
    let unknown = PrincipalId(Ulid::new());
    assert_eq!(rejection(owner.name_principal(unknown, &name(Some("x"))).await).0, 404);
    // The name of a principal that was never created can be removed.
    names::set(&started.app().pool, unknown, "Bo", started.app().now()).await.unwrap();
    assert!(owner.name_principal(unknown, &name(None)).await.unwrap().changed);
    assert_eq!(rejection(owner.name_principal(unknown, &name(None)).await).0, 404);
    let actor =
        CreateToken { name: Some("policy:x".into()), role: Role::Owner, expires_in_s: None };
    assert_eq!(rejection(owner.create_token(&actor).await), (422, "invalid".into()));
}

#[tokio::test]
async fn denial_applies_to_one_plan_digest_only() {
    let (started, owner, created) = with_install().await;
    let me = owner.whoami().await.unwrap().principal;
    let (run, step) = plan_waiting_for_approval(&started, created.id, me).await;
    let position = started.app().log().position();
    let deny = |n| DenyRun { step, digest: digest(n), reason: "destroys the bucket".into() };
    let message = owner.deny(run, &deny(9)).await.unwrap_err().to_string();
    assert!(message.contains(&digest(1).to_string()), "no digest of the current plan: {message}");
    assert_eq!(rejection(owner.deny(run, &deny(9)).await), (409, "approval_stale".into()));
    let waits = owner.run(run).await.unwrap();
    assert_eq!(waits.dag[0].state, "waiting_for_approval", "{waits:?}");
    assert_eq!(started.app().log().position(), position, "something was written");
    assert!(owner.deny(run, &deny(1)).await.unwrap().changed);
    let over = owner.run(run).await.unwrap();
    assert_eq!((over.run.state.as_str(), over.dag[0].state.as_str()), ("denied", "skipped"));
}
