//! Tests of consecutive sessions and of the recovery of their work.
use std::time::Duration;

use axum::http::Method;
use domain::{
    ids::SessionId,
    job::{JobClass, JobKind},
};
use event_log::StoredEvent;
use serde_json::{Value, json};
use ulid::Ulid;

use super::world::{Agent, World};

#[tokio::test]
async fn newest_session_wins() {
    let world = World::new().await;
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let (former, mut next) = (agent.clone(), agent);
    let (polled, _) = tokio::join!(world.poll(&former, 30, json!({})), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        world.open(&mut next, "j", json!([])).await
    });
    polled.rejected(409, "session_superseded");
    let job = world.queue(install, JobKind::Plan, JobClass::Pure).await;
    world.claim(&former, job, "c1").await.rejected(409, "session_superseded");
    world.claim(&next, job, "c1").await.ok();
}

#[tokio::test]
async fn unsupported_protocol_is_rejected_with_the_supported_range() {
    let world = World::new().await;
    let (agent, _) = world.agent().await;
    let assertion = world.opening(&agent, SessionId(Ulid::new()), ("b", "j"));
    let body = json!({"assertion": assertion, "pid": 1, "version": "9", "slots": 1,
        "protocol": {"min": 7, "max": 9}, "capabilities": ["plan"]});
    let response = world.call(Method::POST, "/runner/v1/sessions", "", &body).await;
    assert_eq!(
        response.rejected(426, "protocol_unsupported")["protocol"],
        json!({"min": 1, "max": 1})
    );
    // A later runner that still supports this version is accepted with its unknown capabilities.
    let mut later = body;
    (later["protocol"]["min"], later["capabilities"]) = (1.into(), json!(["plan", "dance"]));
    later["journal"] = json!([{"job": format!("job_{}", Ulid::new()), "claim_id": "c", "log_len": 0,
        "state": "asleep", "since": 3}]);
    let response = world.call(Method::POST, "/runner/v1/sessions", "", &later).await;
    assert_eq!(response.ok()["generation"], 1);
}

/// Reconnects an agent with this journal entry. Returns the action and the job's events.
async fn resumed(class: JobClass, state: &str, journal_id: &str) -> (String, Vec<String>) {
    let world = World::new().await;
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let job = world.queue(install, JobKind::Apply, class).await;
    let claimed = world.claim(&agent, job, "c1").await.ok();
    let started = json!({"type": "started", "payload": {}});
    let execution = claimed["execution"].as_str().unwrap();
    if state != "never_spawned" {
        world.report(&agent, job, execution, 1, started).await.ok();
    }
    let entry = match state {
        "missing" => json!([]),
        state => json!([{"job": job, "execution": execution, "claim_id": "c1", "state": state,
            "log_len": 0}]),
    };
    let response: Value = world.open(&mut agent, journal_id, entry).await;
    let action = response["resume"][0]["action"].as_str().unwrap_or_default().to_string();
    (action, world.event_types(job).await)
}

#[tokio::test]
async fn live_process_resumes() {
    let (action, events) = resumed(JobClass::Mutating, "alive", "j").await;
    assert_eq!((action.as_str(), events.len()), ("resume", 3));
}

#[tokio::test]
async fn work_that_never_spawned_is_done_again_whatever_it_changes() {
    let (action, events) = resumed(JobClass::Unsafe, "never_spawned", "j").await;
    assert_eq!(action, "abandon");
    assert_eq!(events, ["queued", "claimed", "requeued"]);
}

#[tokio::test]
async fn journal_of_another_directory_proves_nothing() {
    let (_, events) = resumed(JobClass::Mutating, "never_spawned", "other").await;
    assert_eq!(events, ["queued", "claimed", "outcome_unknown"]);
}

#[tokio::test]
async fn execution_missing_from_the_journal_is_lost() {
    let (_, events) = resumed(JobClass::Pure, "missing", "j").await;
    assert_eq!(events.last().unwrap(), "requeued");
    let (_, events) = resumed(JobClass::Mutating, "unknown", "j").await;
    assert_eq!(events.last().unwrap(), "outcome_unknown");
}

#[tokio::test]
async fn key_in_use_at_two_hosts_raises_an_alert() {
    let world = World::new().await;
    let (agent, _) = world.agent().await;
    let open = async |boot: &str| {
        let assertion = world.opening(&agent, SessionId(Ulid::new()), (boot, "j"));
        world.open_with(&assertion, json!([])).await.ok();
        let events = world.events("runner", agent.id).await;
        events.iter().filter(|event| event.event_type == "runner.clone_suspected").count()
    };
    // Restarts of one agent on one host raise no alert.
    for _ in 0..8 {
        assert_eq!(open("here").await, 0);
    }
    // Alternating hosts raise one alert.
    for boot in ["there", "here", "there"] {
        assert_eq!(open(boot).await, 0);
    }
    assert_eq!(open("here").await, 1);
    assert_eq!(open("there").await, 1);
}

#[tokio::test]
async fn copied_data_directory_on_the_same_host_raises_the_same_alert() {
    // given two agents with one key, journal and host, of which each reconnects when the other
    // supersedes it
    let world = World::new().await;
    let (mut agent, _) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let mut alerts = Vec::new();
    for _ in 0..6 {
        let mut other = Agent { process_id: Ulid::new().to_string(), ..agent.clone() };
        let (polled, ()) = tokio::join!(world.poll(&agent, 30, json!({})), async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            world.open(&mut other, "j", json!([])).await;
        });
        polled.rejected(409, "session_superseded");
        agent = other;
        let events = world.events("runner", agent.id).await;
        let is_alert = |event: &&StoredEvent| event.event_type == "runner.clone_suspected";
        alerts.push(events.iter().filter(is_alert).count());
    }
    // then one alert is recorded
    assert_eq!(alerts, [0, 0, 0, 1, 1, 1]);
}

#[tokio::test]
async fn repeatedly_killed_agent_raises_no_alert() {
    let world = World::new().await;
    let (mut agent, _) = world.agent().await;
    for _ in 0..8 {
        agent.process_id = Ulid::new().to_string();
        world.open(&mut agent, "j", json!([])).await;
        // Killing the agent closes its long poll.
        let killed =
            tokio::time::timeout(Duration::from_millis(20), world.poll(&agent, 30, json!({})));
        assert!(killed.await.is_err());
    }
    let events = world.events("runner", agent.id).await;
    assert!(events.iter().all(|event| event.event_type != "runner.clone_suspected"));
    // Opening another session during its own long poll raises no alert either.
    for _ in 0..8 {
        let former = agent.clone();
        let (polled, ()) = tokio::join!(world.poll(&former, 30, json!({})), async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            world.open(&mut agent, "j", json!([])).await;
        });
        polled.rejected(409, "session_superseded");
    }
    let events = world.events("runner", agent.id).await;
    assert!(events.iter().all(|event| event.event_type != "runner.clone_suspected"));
}

#[tokio::test]
async fn session_missing_in_the_database_is_not_superseded() {
    // given a runner with a session, and a database that lost its last commits
    let world = World::new().await;
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    world.open(&mut agent, "j", json!([])).await;
    let job = world.queue(install, JobKind::Plan, JobClass::Pure).await;
    let back = "update runner_session set generation = 1, session = 'ses_of_before'";
    sqlx::query(back).execute(&world.app.pool).await.unwrap();
    // when the runner calls a server that does not know the session
    let there = world.second_server().await;
    // then the runner must open another session, and is not superseded
    there.poll(&agent, 0, json!({})).await.rejected(409, "session_unknown");
    there.claim(&agent, job, "c1").await.rejected(409, "session_unknown");
    sqlx::query("delete from runner_session").execute(&world.app.pool).await.unwrap();
    there.poll(&agent, 0, json!({})).await.rejected(409, "session_unknown");
    there.open(&mut agent, "j", json!([])).await;
    there.claim(&agent, job, "c1").await.ok();
}

#[tokio::test]
async fn session_taken_over_by_another_server_is_unknown() {
    let world = World::new().await;
    let (mut agent, _) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let (session, generation) = agent.session.unwrap();
    // The session was found, and then lost again before the poll waits.
    world.app.dispatch.disown(agent.id);
    let known = world.app.dispatch.check(agent.id, session, generation);
    let problem = crate::problem::Problem::from(known.unwrap_err());
    assert_eq!(problem.code.as_str(), "session_unknown");
}

#[tokio::test]
async fn reopened_session_is_the_same_while_it_is_the_newest() {
    // given an opening whose response was lost
    let world = World::new().await;
    let (mut agent, install) = world.agent().await;
    let session = SessionId(Ulid::new());
    let assertion = world.opening(&agent, session, ("boot", "j"));
    let first = world.open_with(&assertion, json!([])).await.ok();
    // when it is repeated, then the session is the same
    let again = world.open_with(&assertion, json!([])).await.ok();
    assert_eq!(first["session_id"], json!(session));
    for same in ["session_id", "generation"] {
        assert_eq!(first[same], again[same]);
    }
    agent.token = again["access_token"].as_str().unwrap().to_string();
    agent.session = Some((session, again["generation"].as_u64().unwrap()));
    let job = world.queue(install, JobKind::Apply, JobClass::Mutating).await;
    world.start_job(&agent, job).await;
    // and a late duplicate does not affect executions that were claimed since
    world.open_with(&assertion, json!([])).await.ok();
    assert_eq!(world.event_types(job).await, ["queued", "claimed", "started"]);
    // and it is rejected once a newer session is open
    world.open(&mut agent, "j", json!([])).await;
    world.open_with(&assertion, json!([])).await.rejected(409, "session_superseded");
    world.poll(&agent, 0, json!({})).await.ok();
}

#[tokio::test]
async fn superseded_opening_cannot_be_replayed_at_any_server() {
    // given a session that a newer one superseded
    let here = World::new().await;
    let (mut agent, _) = here.agent().await;
    let taken = here.opening(&agent, SessionId(Ulid::new()), ("boot", "j"));
    here.open_with(&taken, json!([])).await.ok();
    here.open(&mut agent, "j", json!([])).await;
    // when its opening is replayed at another server, or at this one after a restart
    let there = here.second_server().await;
    there.open_with(&taken, json!([])).await.rejected(409, "session_superseded");
    let here = here.restart().await;
    here.open_with(&taken, json!([])).await.rejected(409, "session_superseded");
    // then the newer session continues
    here.poll(&agent, 0, json!({})).await.ok();
}

#[tokio::test]
async fn last_256_openings_are_stored() {
    // given a session, and 254 later ones
    let world = World::new().await;
    let (mut agent, _) = world.agent().await;
    let session = SessionId(Ulid::new());
    let taken = world.opening(&agent, session, ("boot", "j"));
    world.open_with(&taken, json!([])).await.ok();
    let later = "update runner_session set session = 'ses_1', \
                 recent_sessions = array(select 'ses_' || n from generate_series(1, 254) n) || recent_sessions";
    sqlx::query(later).execute(&world.app.pool).await.unwrap();
    // when one more is opened, then the first is still known to be superseded
    world.open(&mut agent, "j", json!([])).await;
    world.open_with(&taken, json!([])).await.rejected(409, "session_superseded");
    // and the list does not grow beyond its limit
    world.open(&mut agent, "j", json!([])).await;
    let known =
        "select cardinality(recent_sessions), $1 = any (recent_sessions) from runner_session";
    let known: (i32, bool) =
        sqlx::query_as(known).bind(session.to_string()).fetch_one(&world.app.pool).await.unwrap();
    assert_eq!(known, (256, false));
}

#[tokio::test]
async fn failed_opening_can_be_repeated() {
    // given a runner with a session, and a database that rejects the next one
    let world = World::new().await;
    let (mut agent, _) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let session = SessionId(Ulid::new());
    let assertion = world.opening(&agent, session, ("boot", "j"));
    let sql = async |sql| sqlx::query(sql).execute(&world.app.pool).await.unwrap();
    sql("alter table runner_session rename to elsewhere").await;
    let response = world.open_with(&assertion, json!([])).await;
    assert!(response.status.is_server_error(), "{}", response.status);
    // when the runner repeats the opening, then the session is open
    sql("alter table elsewhere rename to runner_session").await;
    let opened = world.open_with(&assertion, json!([])).await.ok();
    assert_eq!(opened["session_id"], json!(session));
}

#[tokio::test]
async fn other_journal_is_detected_in_a_repeated_opening() {
    let world = World::new().await;
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let job = world.queue(install, JobKind::Apply, JobClass::Mutating).await;
    let claimed = world.claim(&agent, job, "c1").await.ok();
    let entry = json!([{"job": job, "execution": claimed["execution"], "claim_id": "c1",
        "state": "never_spawned", "log_len": 0}]);
    let assertion = world.opening(&agent, SessionId(Ulid::new()), ("boot", "other"));
    // The response to the first opening is lost before the journal is evaluated.
    let lost = json!([{"job": job, "execution": claimed["execution"], "claim_id": "c1",
        "state": "alive", "log_len": 0}]);
    world.open_with(&assertion, lost).await.ok();
    world.open_with(&assertion, entry).await.ok();
    assert_eq!(world.event_types(job).await, ["queued", "claimed", "outcome_unknown"]);
}

#[tokio::test]
async fn stolen_token_opens_no_session_and_ends_with_its_session() {
    // given a runner with a running job, and an attacker with its access token
    let world = World::new().await;
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let job = world.queue(install, JobKind::Plan, JobClass::Pure).await;
    let execution = world.start_job(&agent, job).await;
    let stolen = agent.clone();
    // when the attacker signs with another key, then every opening is rejected
    let key = ed25519_dalek::SigningKey::generate(&mut rand::rngs::OsRng);
    let thief = Agent { key, ..stolen.clone() };
    let assertion = world.opening(&thief, SessionId(Ulid::new()), ("boot", "k"));
    world.open_with(&assertion, json!([])).await.rejected(401, "assertion_invalid");
    world.open_with(&stolen.token, json!([])).await.rejected(401, "assertion_invalid");
    // and when the runner opens its next session, then the stolen token is invalid
    let entry = json!([{"job": job, "execution": execution, "claim_id": "c1", "state": "alive",
        "log_len": 0}]);
    world.open(&mut agent, "j", entry).await;
    let phase = json!({"type": "phase", "payload": {"name": "mine"}});
    let superseded = |response: super::world::TestResponse| {
        response.rejected(409, "session_superseded");
    };
    superseded(world.report(&stolen, job, &execution, 2, phase.clone()).await);
    superseded(world.poll(&stolen, 0, json!({})).await);
    superseded(world.claim(&stolen, job, "c1").await);
    let blob = format!("/runner/v1/blobs/sha256:{:064x}", 1);
    superseded(world.call(Method::PUT, &blob, &stolen.token, &json!({})).await);
    let log = format!("/runner/v1/jobs/{job}/log");
    superseded(world.call(Method::PATCH, &log, &stolen.token, &json!({})).await);
    world.report(&agent, job, &execution, 2, phase).await.ok();
}

#[tokio::test]
async fn session_and_its_work_survive_a_server_restart() {
    let world = World::new().await;
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let job = world.queue(install, JobKind::Apply, JobClass::Mutating).await;
    let waiting = world.queue(install, JobKind::Plan, JobClass::Pure).await;
    let execution = world.start_job(&agent, job).await;
    let world = world.restart().await;
    let running = json!({"running": [{"job": job, "execution": execution, "log_len": 0}]});
    let polled = world.poll(&agent, 5, running).await.ok();
    assert_eq!(polled["directives"][0]["job"], json!(waiting));
    assert_eq!(polled["leases"][0]["job"], json!(job));
    let phase = json!({"type": "phase", "payload": {"name": "apply"}});
    world.report(&agent, job, &execution, 2, phase).await.ok();
    world.claim(&agent, waiting, "c9").await.ok();
}

#[tokio::test]
async fn closed_session_is_offered_nothing() {
    let world = World::new().await;
    let (mut agent, install) = world.agent().await;
    world.open(&mut agent, "j", json!([])).await;
    let path = format!("/runner/v1/sessions/{}", agent.session.unwrap().0);
    world.call(Method::DELETE, &path, &agent.token, &json!({})).await.ok();
    world.queue(install, JobKind::Plan, JobClass::Pure).await;
    assert!(world.app.dispatch.session_of(agent.id).is_none());
}

#[tokio::test]
async fn session_can_call_any_server() {
    let here = World::new().await;
    let (mut agent, install) = here.agent().await;
    here.open(&mut agent, "j", json!([])).await;
    let there = here.second_server().await;
    let job = here.queue(install, JobKind::Plan, JobClass::Pure).await;
    let offered = there.poll(&agent, 10, json!({})).await.ok();
    assert_eq!(offered["directives"][0]["job"], json!(job));
    // The other server owns the session now, but the claim arrives here.
    let claimed = here.claim(&agent, job, "c1").await.ok();
    let again = there.claim(&agent, job, "c1").await.ok();
    assert_eq!(claimed["grant"], again["grant"]);
    let next = here.queue(install, JobKind::Plan, JobClass::Pure).await;
    let mut newer = agent.clone();
    there.open(&mut newer, "j", json!([])).await;
    here.claim(&agent, next, "c2").await.rejected(409, "session_superseded");
    there.claim(&newer, next, "c3").await.ok();
}
