//! Checks that an auditor can make without trusting the server.
use cli::client::{Client, Verifier, lines, server_events};
use futures::{StreamExt, pin_mut};
use proof::{Hash, checkpoint::Checkpoint, tree};
use schemas::control::{
    audit::{AsOfQuery, DoctorProgress, EventRecord, EventsQuery, ProofQuery},
    installs::UpdateInstall,
    projections::{Progress, RebuildQuery},
    tokens::{CreateToken, Role},
};

use tower::ServiceExt as _;

use super::{rejection, with_install};

async fn export(client: &Client) -> Vec<EventRecord> {
    let all = lines(client.export(&EventsQuery::default()).await.unwrap());
    pin_mut!(all);
    let mut events = vec![];
    while let Some(line) = all.next().await {
        events.push(serde_json::from_str(&line.unwrap()).unwrap());
    }
    events
}

async fn checkpoint(client: &Client) -> Checkpoint {
    let response = client.checkpoint().await.unwrap();
    let key: [u8; 32] = hex::decode(response.key).unwrap().try_into().unwrap();
    let key = ed25519_dalek::VerifyingKey::from_bytes(&key).unwrap();
    Checkpoint::open(&response.note, &[key]).unwrap()
}

fn hashes(texts: &[String]) -> Vec<Hash> {
    texts.iter().map(|text| hex::decode(text).unwrap().try_into().unwrap()).collect()
}

#[tokio::test]
async fn export_verifies_against_the_signed_checkpoint() {
    let (_started, owner, _) = with_install().await;
    let now = checkpoint(&owner).await;
    let mut verifier = Verifier::new(&now.log_id);
    for event in export(&owner).await.iter().take_while(|event| event.position <= now.size) {
        verifier.take(event).unwrap();
    }
    verifier.agrees(&now).unwrap();
}

#[tokio::test]
async fn inclusion_and_consistency_are_proven() {
    let (_started, owner, created) = with_install().await;
    let before = checkpoint(&owner).await;
    let on = UpdateInstall { auto_approve: Some(true), ..UpdateInstall::default() };
    owner.update_install("acme", &on).await.unwrap();

    let request = ProofQuery { position: Some(created.position), consistent_with: None };
    let proof = owner.proof(&request).await.unwrap();
    let signed = Checkpoint::read_unverified(&proof.checkpoint.note).unwrap();
    let leaf = hashes(&[proof.leaf.unwrap()])[0];
    let path = hashes(&proof.hashes);
    tree::verify_inclusion(&leaf, created.position - 1, signed.size, &path, &signed.root).unwrap();

    let request = ProofQuery { position: None, consistent_with: Some(before.size) };
    let proof = owner.proof(&request).await.unwrap();
    let signed = Checkpoint::read_unverified(&proof.checkpoint.note).unwrap();
    let path = hashes(&proof.hashes);
    tree::verify_consistency(before.size, &before.root, signed.size, &signed.root, &path).unwrap();
    let nowhere = ProofQuery { position: Some(signed.size + 1000), consistent_with: None };
    assert_eq!(rejection(owner.proof(&nowhere).await).0, 404);
}

#[tokio::test]
async fn events_are_found_by_stream_type_actor_and_time() {
    let (_started, owner, created) = with_install().await;
    let me = owner.whoami().await.unwrap().principal.to_string();
    let count = async |query: EventsQuery| {
        let query = EventsQuery { limit: Some(200), ..query };
        owner.events(&query).await.unwrap().items.len()
    };
    let of = |stream: &str| EventsQuery { stream: Some(stream.into()), ..Default::default() };
    assert_eq!(count(of(&format!("install/{}", created.id))).await, 1);
    assert_eq!(count(of("install")).await, 1);
    assert_eq!(count(of("name/install/acme")).await, 1);
    let typed = |name: &str| EventsQuery { event_type: Some(name.into()), ..Default::default() };
    assert_eq!(count(typed("component.defined")).await, 2);
    assert_eq!(count(typed("component.")).await, 2);
    assert_eq!(rejection(owner.events(&typed("component")).await).0, 400);
    let by = |actor: &str| EventsQuery { actor: Some(actor.into()), ..Default::default() };
    assert!(count(by(&me)).await > 4);
    let stranger = owner.events(&by("prn_01ARZ3NDEKTSV4RRFFQ69G5FAV")).await;
    assert_eq!(rejection(stranger).0, 404);
    let one = owner.events(&of("install")).await.unwrap().items.remove(0);
    let since = EventsQuery { since: Some(one.recorded_at), ..of("install") };
    assert_eq!(count(since).await, 1);
    let until = EventsQuery { until: Some(one.recorded_at), ..of("install") };
    assert_eq!(count(until).await, 0);
}

#[tokio::test]
async fn as_of_query_returns_the_earlier_state() {
    let (_started, owner, created) = with_install().await;
    let on = UpdateInstall { auto_approve: Some(true), ..UpdateInstall::default() };
    let done = owner.update_install("acme", &on).await.unwrap();
    let at = |position| AsOfQuery {
        stream: "install/acme".into(),
        position,
        time: None,
        min_position: None,
    };
    let then = owner.as_of(&at(Some(created.position))).await.unwrap();
    assert_eq!((then.sequence, &then.state["auto_approve"]), (1, &false.into()));
    let now = owner.as_of(&at(Some(done.position))).await.unwrap();
    assert_eq!((now.sequence, &now.state["auto_approve"]), (2, &true.into()));
    assert_eq!(rejection(owner.as_of(&at(Some(1))).await).0, 404);
    assert_eq!(rejection(owner.as_of(&at(Some(1_000_000))).await).0, 404);
}

#[tokio::test]
async fn rebuilt_projections_equal_the_old_ones_and_verify() {
    let (_started, owner, _) = with_install().await;
    let before = owner.install("acme").await.unwrap();
    let mut all = owner.projections().await.unwrap().items;
    all.retain(|projection| projection.class != "policy");
    assert!(all.len() > 8);
    for verb in ["verify", "rebuild", "rollback", "verify"] {
        for projection in &all {
            let last = run_operation(&owner, &projection.name, verb, None).await.pop().unwrap();
            assert_eq!((last.state.as_str(), last.differences.len()), ("done", 0), "{last:?}");
        }
    }
    // A rebuild of all projections reports each projection, then the total.
    let progress = run_operation(&owner, "all", "rebuild", Some(3)).await;
    let done: Vec<_> = progress.iter().filter(|one| one.state == "done").collect();
    assert_eq!(done.len(), all.len() + 1);
    assert_eq!(done.last().unwrap().projection, "all");
    for projection in &all {
        let last = run_operation(&owner, &projection.name, "verify", None).await.pop().unwrap();
        assert_eq!((last.state.as_str(), last.differences.len()), ("done", 0), "{last:?}");
    }
    let after = owner.install("acme").await.unwrap();
    assert_eq!((before.id, before.components), (after.id, after.components));
    let with = |parallel| RebuildQuery { parallel, ..RebuildQuery::default() };
    assert_eq!(rejection(owner.work_on_projection("nothing", "rebuild", &with(None)).await).0, 404);
    assert_eq!(
        rejection(owner.work_on_projection("jobs", "rebuild", &with(Some(99))).await).0,
        400
    );
}

async fn run_operation(
    owner: &Client,
    name: &str,
    verb: &str,
    parallel: Option<u32>,
) -> Vec<Progress> {
    let work = owner
        .work_on_projection(name, verb, &RebuildQuery { parallel, ..RebuildQuery::default() })
        .await
        .unwrap();
    let events = server_events(work);
    pin_mut!(events);
    let mut progress = vec![];
    while let Some(event) = events.next().await {
        progress.push(serde_json::from_str::<Progress>(&event.unwrap().data).unwrap());
    }
    progress
}

async fn run_doctor(owner: &Client) -> Vec<String> {
    let events = server_events(owner.examine().await.unwrap());
    pin_mut!(events);
    let mut last = None;
    while let Some(event) = events.next().await {
        last = Some(serde_json::from_str::<DoctorProgress>(&event.unwrap().data).unwrap());
    }
    let last = last.unwrap();
    assert_eq!((last.check.as_str(), last.state.as_str()), ("all", "done"), "{last:?}");
    last.findings
}

#[tokio::test]
async fn doctor_finds_damage_that_clients_cannot_see() {
    let (started, owner, _) = with_install().await;
    assert_eq!(run_doctor(&owner).await, [""; 0]);
    for (tamper, part, text) in [
        (
            "update log_stream set last_position = 1 where aggregate_type = 'install'",
            "log",
            "version",
        ),
        ("update projection_apps set name = 'hut'", "apps", "name"),
        (
            "update log_event set event_version = '7' where event_type = 'app.created'",
            "events",
            "version 7",
        ),
    ] {
        sqlx::query(tamper).execute(&started.app().pool).await.unwrap();
        let findings = run_doctor(&owner).await;
        let is_it = |one: &String| one.starts_with(&format!("{part}: ")) && one.contains(text);
        assert!(findings.iter().any(is_it), "{tamper}: {findings:?}");
    }
}

#[tokio::test]
async fn only_one_doctor_runs_at_a_time() {
    let (started, owner, _) = with_install().await;
    let going_on = started.app().doctor_permit.clone().try_acquire_owned().unwrap();
    assert_eq!(rejection(owner.examine().await.map(drop)), (409, "rejected".into()));
    drop(going_on);
    assert_eq!(run_doctor(&owner).await, [""; 0]);
    assert_eq!(run_doctor(&owner).await, [""; 0]);
}

#[tokio::test]
async fn disconnected_doctor_keeps_its_permit_until_it_finishes() {
    // Given a check whose read of the log is blocked.
    let (started, _, _) = with_install().await;
    let app = started.app();
    let mut long = app.pool.begin().await.unwrap();
    let lock = sqlx::query("lock table log_event in access exclusive mode");
    lock.execute(&mut *long).await.unwrap();
    let request = axum::http::Request::post("/v1/audit/doctor")
        .header("authorization", format!("Bearer {}", started.owner_token()))
        .body(axum::body::Body::empty())
        .unwrap();
    let response = crate::router::control(app).oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let mut listener = response.into_body().into_data_stream();
    let waits =
        "select count(*) from pg_locks where not granted and relation = 'log_event'::regclass";
    let waits = async || sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut *long).await.unwrap();
    tokio::select! {
        _ = listener.next() => panic!("unexpected progress"),
        () = wait_for_count(waits, 1) => {}
    }
    // When the client disconnects, no second check can start.
    drop(listener);
    assert_eq!(app.doctor_permit.available_permits(), 0);
    // When the verification task finishes, another check can start.
    long.rollback().await.unwrap();
    let free = async || i64::try_from(app.doctor_permit.available_permits()).unwrap();
    wait_for_count(free, 1).await;
}

/// Waits until the count is at least `enough`.
async fn wait_for_count(mut count: impl AsyncFnMut() -> i64, enough: i64) {
    for _ in 0..400 {
        if count().await >= enough {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    panic!("timeout");
}

#[tokio::test]
async fn doctor_reports_unchecked_events() {
    let (started, owner, _) = with_install().await;
    for _ in 0..40 {
        let request = CreateToken { name: None, role: Role::Viewer, expires_in_s: None };
        owner.create_token(&request).await.unwrap();
    }
    let tamper = "update log_event set event_version = '7' where event_type like 'access.%'";
    sqlx::query(tamper).execute(&started.app().pool).await.unwrap();
    let findings = run_doctor(&owner).await;
    let of_events: Vec<_> = findings.iter().filter(|one| one.starts_with("events: ")).collect();
    assert_eq!(of_events.len(), 101);
    assert!(of_events[100].contains("were not checked"), "{:?}", of_events[100]);
}
