//! As-of queries of aggregates and projections, and diffs.
use std::time::Duration;

use cli::client::{Client, ClientError, server_events};
use domain::{job::Report, run::StepState};
use futures::{StreamExt, pin_mut};
use schemas::control::{
    audit::{AsOfQuery, EventsQuery},
    history::StreamDiffQuery,
    installs::UpdateInstall,
    projections::{Progress, ProjectionRow, RebuildQuery, RowsProgress, RowsQuery},
    runs::ApproveRun,
    tokens::RenamePrincipal,
};
use serde_json::{Value, json};

use super::{
    reactions::{
        complete_build, complete_job, complete_plan, digest, enroll, run_of, wait_for,
        wait_for_step,
    },
    rejection, with_install,
};

fn between(stream: &str, from: u64, to: Option<u64>) -> StreamDiffQuery {
    let (from_position, to_position) = (Some(from), to);
    StreamDiffQuery {
        stream: stream.into(),
        from_position,
        to_position,
        ..StreamDiffQuery::default()
    }
}

async fn rows_as_of(
    client: &Client,
    name: &str,
    which: &RowsQuery,
) -> (RowsProgress, Vec<ProjectionRow>) {
    let events = server_events(client.projection_rows(name, which).await.unwrap());
    pin_mut!(events);
    let (mut rows, mut last) = (vec![], None);
    while let Some(event) = events.next().await {
        let mut progress: RowsProgress = serde_json::from_str(&event.unwrap().data).unwrap();
        rows.append(&mut progress.rows);
        last = Some(progress);
    }
    (last.unwrap(), rows)
}

#[tokio::test]
async fn diff_lists_changes_with_requester_approver_and_jobs() {
    let (started, owner, acme) = with_install().await;
    let app = started.app();
    let me = owner.whoami().await.unwrap();
    let named = RenamePrincipal { name: Some("Ann Lee".into()) };
    owner.name_principal(me.principal, &named).await.unwrap();
    // Given a run whose plan was approved and applied.
    enroll(app, acme.id).await;
    let run = run_of(app, acme.id).await;
    complete_build(&started).await;
    let since = acme.position;
    complete_plan(app, run).await;
    wait_for_step(app, run, |state| {
        matches!(state, StepState::AwaitingApproval { .. }).then_some(())
    })
    .await;
    let step = owner.run(run).await.unwrap().dag[0].id;
    let approval = ApproveRun { step, digest: digest(2), reason: "read it".into() };
    let approved = owner.approve(run, &approval).await.unwrap().position;
    let job = wait_for_step(app, run, |state| {
        let StepState::Applying { job, .. } = state else { return None };
        Some(*job)
    });
    let job = job.await;
    complete_job(app, job, Report::Outputs { outputs: [("id".to_owned(), json!("net-1"))].into() })
        .await;
    wait_for_step(app, run, |state| matches!(state, StepState::Succeeded { .. }).then_some(()))
        .await;
    // When the install is compared with its state at creation.
    let diff = owner.between(&between("install/acme", since, None)).await.unwrap();
    assert_eq!((diff.stream, diff.name.as_deref()), (format!("install/{}", acme.id), Some("acme")));
    let path = |path: &str| {
        let found = diff.changes.iter().find(|change| change.path == path);
        found.map(|change| (change.before.clone(), change.after.clone()))
    };
    assert_eq!(path("components.base.outputs.id"), Some((None, Some("net-1".into()))));
    assert_eq!(path("name"), None);
    let [of_run] = diff.runs.as_slice() else { panic!("{:?}", diff.runs) };
    assert_eq!((of_run.run, of_run.kind.as_str()), (run, "provision"));
    let approval = &of_run.interventions[0];
    assert_eq!((approval.kind.as_str(), approval.step_name.as_deref()), ("approved", Some("base")));
    assert_eq!(
        (approval.by_name.as_deref(), approval.reason.as_deref()),
        (Some("Ann Lee"), Some("read it"))
    );
    assert_eq!(
        (&approval.digest, approval.by.as_str()),
        (&Some(digest(2)), &*me.principal.to_string())
    );
    let jobs: Vec<_> = of_run.jobs.iter().map(|job| (&*job.kind, job.outcome.as_deref())).collect();
    let succeeded = |kind| (kind, Some("succeeded"));
    assert_eq!(jobs, ["preflight", "plan", "apply"].map(succeeded));
    let base = &of_run.components[0];
    assert_eq!((base.name.as_str(), &base.before), ("base", &None));
    assert_eq!(base.after.as_ref().unwrap().config_version, 1);
    assert!(
        diff.other_events.iter().any(|event| event.event_type == "install.stack_outputs_reported")
    );
    assert_eq!(diff.complete_through, diff.to.position);
    // The diff of the run since the approval has the approval and the apply job.
    let diff = owner.between(&between(&format!("run/{run}"), approved, None)).await.unwrap();
    assert!(diff.changes.iter().any(|change| change.path.starts_with("steps[0].state")));
    let [of_run] = diff.runs.as_slice() else { panic!("{:?}", diff.runs) };
    assert_eq!(of_run.interventions.len(), 1);
    assert!(of_run.jobs.iter().any(|job| job.kind == "apply"));
    assert!(of_run.events.iter().all(|event| event.position > approved));
}

#[tokio::test]
async fn diff_of_another_aggregate_lists_its_events() {
    let (_started, owner, created) = with_install().await;
    let diff = owner.between(&between("app/shop", 0, None)).await.unwrap();
    assert_eq!(diff.name.as_deref(), Some("shop"));
    let types: Vec<_> = diff.other_events.iter().map(|event| &*event.event_type).collect();
    assert_eq!(types, ["app.created", "app.config_published"]);
    // Without later events, nothing has changed.
    let diff = owner.between(&between("app/shop", created.position, None)).await.unwrap();
    assert_eq!((diff.changes.len(), diff.other_events.len()), (0, 0));
}

#[tokio::test]
async fn invalid_diff_request_is_rejected() {
    let (_started, owner, created) = with_install().await;
    let request = async |query: StreamDiffQuery| rejection(owner.between(&query).await);
    let since_when =
        StreamDiffQuery { stream: "install/acme".into(), ..StreamDiffQuery::default() };
    assert_eq!(request(since_when).await, (400, "bad_request".into()));
    assert_eq!(request(between("install/acme", created.position, Some(1))).await.0, 400);
    assert_eq!(request(between("install/acme", 0, Some(1))).await.0, 404);
    assert_eq!(request(between("install/nobody", 0, None)).await.0, 404);
    assert_eq!(request(between("acme", 0, None)).await.0, 400);
    assert_eq!(request(between("thing/acme", 0, None)).await.0, 404);
}

#[tokio::test]
async fn apps_and_installs_are_found_by_name_others_by_id() {
    let (_started, owner, _) = with_install().await;
    let of = |stream: &str| EventsQuery { stream: Some(stream.into()), ..Default::default() };
    for named in ["install/acme", "app/shop"] {
        assert!(!owner.events(&of(named)).await.unwrap().items.is_empty(), "{named}");
    }
    assert_eq!(rejection(owner.events(&of("install/nobody")).await).0, 404);
    let message = owner.events(&of("run/acme")).await.unwrap_err().to_string();
    assert!(message.contains("pass the id: only installs and apps"), "{message}");
    let at =
        AsOfQuery { stream: "job/acme".into(), position: None, time: None, min_position: None };
    assert_eq!(rejection(owner.as_of(&at).await).0, 400);
}

#[tokio::test]
async fn projection_rows_are_returned_as_of_a_position() {
    let (_started, owner, created) = with_install().await;
    let on = UpdateInstall { auto_approve: Some(true), ..UpdateInstall::default() };
    owner.update_install("acme", &on).await.unwrap();
    let at = |position, key: Option<String>| RowsQuery { key, position, ..RowsQuery::default() };
    let auto = |rows: &[ProjectionRow]| {
        let row: Value = serde_json::from_str(rows[0].row.get()).unwrap();
        row["state"]["auto_approve"].as_bool().unwrap()
    };
    let (last, then) = rows_as_of(&owner, "installs", &at(Some(created.position), None)).await;
    assert_eq!(
        (last.state.as_str(), last.position, auto(&then)),
        ("done", created.position, false)
    );
    assert!(last.recorded_at.is_some());
    let key = Some(created.id.to_string());
    let (_, now) = rows_as_of(&owner, "installs", &at(None, key.clone())).await;
    assert_eq!((now.len(), &now[0].key, auto(&now)), (1, &created.id.to_string(), true));
    let (last, before) = rows_as_of(&owner, "installs", &at(Some(1), key)).await;
    assert_eq!((last.state.as_str(), before.len()), ("done", 0));
    let (_, apps) = rows_as_of(&owner, "apps", &at(None, None)).await;
    assert_eq!(apps.len(), 1);
    let nothing = owner.projection_rows("cats", &RowsQuery::default()).await.map(drop);
    assert_eq!(rejection(nothing), (404, "not_found".into()));
    let early = owner.projection_rows("apps", &at(Some(1_000_000), None)).await.map(drop);
    assert_eq!(rejection(early).0, 404);
    let long = owner.projection_rows("apps", &at(None, Some("x".repeat(201)))).await.map(drop);
    assert_eq!(rejection(long).0, 400);
}

#[tokio::test]
async fn as_of_rebuild_creates_a_separate_table() {
    let (_started, owner, created) = with_install().await;
    let how = RebuildQuery { as_of_position: Some(created.position), ..RebuildQuery::default() };
    let table = async |name: &str, how: &RebuildQuery| {
        let events = server_events(owner.work_on_projection(name, "rebuild", how).await?);
        pin_mut!(events);
        let mut last = None;
        while let Some(event) = events.next().await {
            last = Some(serde_json::from_str::<Progress>(&event?.data).unwrap());
        }
        let last = last.unwrap();
        Ok::<_, ClientError>((last.state, last.table, last.rows))
    };
    let name = format!("projection_installs_at_{}", created.position);
    let done = ("done".to_owned(), Some(name), Some(1));
    assert_eq!(table("installs", &how).await.unwrap(), done);
    assert_eq!(table("installs", &how).await.unwrap().0, "failed", "it is there");
    let list = owner.projections().await.unwrap().items;
    let as_of_table =
        |name: &str| list.iter().find(|one| one.name == name).unwrap().as_of_positions.clone();
    assert_eq!((as_of_table("installs"), as_of_table("apps")), (vec![created.position], vec![]));
    assert!(owner.drop_as_of_table("installs", created.position).await.unwrap().changed);
    assert!(!owner.drop_as_of_table("installs", created.position).await.unwrap().changed);
    assert_eq!(rejection(table("all", &how).await).0, 400);
    let many = RebuildQuery { parallel: Some(2), ..how };
    assert_eq!(rejection(table("installs", &many).await).0, 400);
}

#[tokio::test]
async fn as_of_queries_are_limited_and_a_disconnect_frees_a_permit() {
    let (started, owner, _) = with_install().await;
    let app = started.app();
    let all = app.as_of_permits.available_permits();
    let permits = app.as_of_permits.clone().try_acquire_many_owned(2).unwrap();
    let response = owner.projection_rows("apps", &RowsQuery::default()).await.map(drop);
    assert_eq!(rejection(response), (503, "busy".into()));
    drop(permits);
    // Given a query that waits for the log.
    let mut lock = app.pool.begin().await.unwrap();
    sqlx::raw_sql("lock table log_event in access exclusive mode")
        .execute(&mut *lock)
        .await
        .unwrap();
    let looking = tokio::spawn(async move {
        let _ = owner.projection_rows("apps", &RowsQuery::default()).await;
    });
    wait_for(async || (app.as_of_permits.available_permits() < all).then_some(())).await;
    // When its client disconnects, its permit is released without waiting for the log.
    looking.abort();
    wait_for(async || (app.as_of_permits.available_permits() == all).then_some(())).await;
    tokio::time::timeout(Duration::from_secs(5), lock.rollback()).await.unwrap().unwrap();
}
