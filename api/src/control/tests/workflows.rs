//! Workflows of users, in their usual order.
use cli::client::server_events;
use futures::{StreamExt, pin_mut};
use schemas::control::{
    PageQuery, ReasonBody,
    apps::DiffQuery,
    audit::ChangesQuery,
    builds::BuildsQuery,
    installs::UpdateInstall,
    jobs::{Cancel, JobsQuery},
    runs::{RequestRun, RequestedKind, RunsQuery},
};

use super::{bundle, new_install, owner, rejection, with_install};
use crate::server::testing::Started;

#[tokio::test]
async fn bundle_is_published_once_and_only_changed_components_are_built() {
    let started = Started::new().await;
    let owner = owner(&started);
    let tried = owner.sync("shop", bundle("1"), true).await.unwrap();
    assert_eq!((tried.version, tried.dry_run, tried.app), (1, true, None));
    assert!(owner.apps(&PageQuery::default()).await.unwrap().items.is_empty());

    let first = owner.sync("shop", bundle("1"), false).await.unwrap();
    assert_eq!((first.version, first.unchanged, first.builds.len()), (1, false, 2));
    let again = owner.sync("shop", bundle("1"), false).await.unwrap();
    assert_eq!((again.version, again.unchanged, again.builds.len()), (1, true, 0));

    let second = owner.sync("shop", bundle("2"), false).await.unwrap();
    let built: Vec<_> = second.builds.iter().map(|b| b.component.as_str()).collect();
    assert_eq!((second.version, built), (2, vec!["base"]));
    assert_eq!((second.diff.from, second.diff.to), (Some(1), Some(2)));
    let changed: Vec<_> = second.diff.changes.iter().map(|c| (&*c.change, &*c.name)).collect();
    assert_eq!(changed, [("changed", "base")]);
    let which = DiffQuery { from: Some(1), ..DiffQuery::default() };
    assert_eq!(owner.diff("shop", &which).await.unwrap(), second.diff);

    let app = owner.app("shop").await.unwrap();
    assert_eq!((Some(app.id), app.version, app.components), (first.app, 2, 2));
    let part = PageQuery { limit: Some(1), ..PageQuery::default() };
    let newest = owner.versions("shop", &part).await.unwrap();
    assert_eq!((newest.items[0].version, newest.next.as_deref()), (2, Some("2")));
    let next = PageQuery { cursor: newest.next, ..part };
    assert_eq!(owner.versions("shop", &next).await.unwrap().items[0].version, 1);

    let of = BuildsQuery { app: Some("shop".into()), ..BuildsQuery::default() };
    let builds = owner.builds(&of).await.unwrap().items;
    assert_eq!(builds.len(), 3);
    let one = owner.build(builds[0].id).await.unwrap();
    assert_eq!((one.component_name.as_str(), one.ended_at), ("base", None));
}

#[tokio::test]
async fn install_is_created_displayed_and_updated() {
    let (_started, owner, created) = with_install().await;
    let enrolment = created.enrolment.unwrap();
    assert!(!enrolment.command.contains(&enrolment.token), "the shell history would have it");
    assert!(enrolment.command.contains("--data /var/lib/stead-runner --mode install"));
    let end = "--policy /var/lib/stead-runner/policy.toml --token-file -";
    assert!(enrolment.command.ends_with(end), "{}", enrolment.command);
    assert!(enrolment.command.contains(&enrolment.server_key));
    let install = owner.install("acme").await.unwrap();
    assert_eq!((install.id, install.state.as_str()), (created.id, "waiting_for_runner"));
    assert_eq!(install.components.len(), 2);
    let by_id = owner.install(&created.id.to_string()).await.unwrap();
    assert_eq!((install.id, install.components), (by_id.id, by_id.components));

    let on = UpdateInstall { auto_approve: Some(true), ..UpdateInstall::default() };
    let done = owner.update_install("acme", &on).await.unwrap();
    assert!(done.changed && done.run.is_none());
    assert!(!owner.update_install("acme", &on).await.unwrap().changed);
    assert!(owner.install("acme").await.unwrap().auto_approve);

    let inputs = [("size".to_owned(), Some("3".to_owned()))].into();
    let set = UpdateInstall { inputs: Some(inputs), ..UpdateInstall::default() };
    owner.update_install("acme", &set).await.unwrap();
    let state = owner.install_state("acme", &Default::default()).await.unwrap().state;
    assert_eq!(state["nuon"]["inputs"]["inputs"]["size"], "3");
    let then = schemas::control::installs::StateQuery {
        position: Some(created.position),
        ..Default::default()
    };
    let state = owner.install_state("acme", &then).await.unwrap().state;
    assert_eq!(state["nuon"]["inputs"]["inputs"]["size"], "2");

    let request = RequestRun {
        kind: RequestedKind::Reprovision,
        components: vec![],
        action: None,
        reason: None,
        plan_all: false,
    };
    assert_eq!(rejection(owner.request_run("acme", &request).await), (409, "no_runner".into()));
    assert!(owner.runs(&RunsQuery::default()).await.unwrap().items.is_empty());
    let another =
        owner.create_enrolment_token("acme", &Default::default()).await.unwrap().enrolment.unwrap();
    assert_ne!(another.token, enrolment.token);
}

#[tokio::test]
async fn queued_job_is_cancelled_and_its_build_retried() {
    let (_started, owner, _) = with_install().await;
    // A policy queues the jobs of the builds shortly after the sync.
    let mut jobs = vec![];
    for _ in 0..100 {
        jobs = owner.jobs(&JobsQuery::default()).await.unwrap().items;
        if jobs.len() == 2 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let job = &jobs[0];
    assert_eq!((job.state.as_str(), job.kind.as_str()), ("queued", "build"));
    assert_eq!(job.waiting.as_ref().unwrap().on, "runner");
    let in_state = async |state: &str| {
        let query = BuildsQuery { state: Some(state.into()), ..BuildsQuery::default() };
        owner.builds(&query).await.map(|page| page.items.len())
    };
    assert_eq!((in_state("queued").await.unwrap(), in_state("running").await.unwrap()), (2, 0));
    assert_eq!(rejection(in_state("lost").await).0, 400);
    let why = Cancel { reason: "not today".into(), force: false };
    assert!(owner.cancel_job(job.id, &why).await.unwrap().changed);
    let cancelled = owner.job(job.id).await.unwrap();
    assert_eq!((cancelled.state.as_str(), cancelled.attempts.len()), ("cancelled", 0));
    assert_eq!(rejection(owner.log(job.id, 1, 0).await).0, 404);

    // The build of the cancelled job fails shortly afterwards. A retry publishes another version.
    let build = job.build.unwrap();
    while owner.build(build).await.unwrap().ended_at.is_none() {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let again = owner.retry_build(build).await.unwrap();
    assert_eq!((again.version, again.builds.len()), (2, 1));
    let diff = owner.diff("shop", &DiffQuery::default()).await.unwrap();
    assert!(diff.changes.is_empty(), "{diff:?}");
    assert_eq!(rejection(owner.retry_build(build).await), (409, "rejected".into()));
    assert_eq!(rejection(owner.retry_build(again.builds[0].id).await), (409, "rejected".into()));
}

#[tokio::test]
async fn change_stream_starts_after_the_given_position() {
    let (_started, owner, created) = with_install().await;
    let query = ChangesQuery {
        after: Some(created.position),
        stream: Some(format!("install/{}", created.id)),
    };
    let events = server_events(owner.changes(&query).await.unwrap());
    let on = UpdateInstall { auto_approve: Some(true), ..UpdateInstall::default() };
    let done = owner.update_install("acme", &on).await.unwrap();
    pin_mut!(events);
    let received = events.next().await.unwrap().unwrap();
    assert_eq!(received.id, Some(done.position.to_string()));
    assert!(received.data.contains("install.auto_approve_changed"), "{}", received.data);
}

#[tokio::test]
async fn cursor_continues_a_list() {
    let (_started, owner, _) = with_install().await;
    for name in ["beta", "gamma"] {
        owner.create_install(&new_install(name)).await.unwrap();
    }
    let mut names = vec![];
    let mut cursor = None;
    loop {
        let query = schemas::control::installs::InstallsQuery {
            limit: Some(1),
            cursor,
            ..Default::default()
        };
        let page = owner.installs(&query).await.unwrap();
        names.extend(page.items.into_iter().map(|install| install.name));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(names, ["acme", "beta", "gamma"]);
}

#[tokio::test]
async fn control_of_an_unknown_runner_is_rejected() {
    let (_started, owner, _) = with_install().await;
    let runner = "rnr_01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
    for verb in ["disable", "drain", "revoke"] {
        let response = owner.order_runner(runner, verb, &ReasonBody::default()).await;
        assert_eq!(rejection(response).0, 404, "{verb}");
    }
    assert_eq!(rejection(owner.order_runner(runner, "dance", &ReasonBody::default()).await).0, 404);
}
