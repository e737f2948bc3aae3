//! Tests of a complete server through its listeners.
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use schemas::keys::{KEYS_TYPE, KeyList, KeyUse, fingerprint};
use serde_json::Value;

use super::testing::{Started, client, options};
use super::*;

#[tokio::test]
async fn first_start_creates_an_owner_for_later_starts() {
    let data = tempfile::tempdir().unwrap();
    let database = event_log::testing::fresh_database().await.unwrap();
    let server = Server::start(options(data.path(), &database.url)).await.unwrap();
    assert!(server.ready.first_start);
    let token = std::fs::read_to_string(server.ready.owner_token_file.as_ref().unwrap()).unwrap();
    let (log_id, key) = (server.ready.log_id.clone(), server.ready.fingerprint.clone());
    let owner = server.app.principals.identify(token.trim(), server.app.now()).unwrap();
    server.stop().await;

    let server = Server::start(options(data.path(), &database.url)).await.unwrap();
    assert!(!server.ready.first_start);
    assert_eq!((&server.ready.log_id, &server.ready.fingerprint), (&log_id, &key));
    assert_eq!(server.app.principals.identify(token.trim(), server.app.now()).unwrap(), owner);
    // No table contains the token in plain text.
    let dump = "select string_agg(payload::text || metadata::text, '') from log_event";
    let dump: String = sqlx::query_scalar(dump).fetch_one(&server.app.pool).await.unwrap();
    assert!(dump.contains("access.principal_added") || dump.contains("principal_added"));
    assert!(!dump.contains(token.trim()));
    server.stop().await;
}

#[tokio::test]
async fn both_listeners_serve_keys_and_probes() {
    let started = Started::new().await;
    for url in
        [started.control("/.well-known/stead-keys"), started.runner("/.well-known/stead-keys")]
    {
        let envelope: proof::dsse::Envelope =
            started.http.get(url).send().await.unwrap().json().await.unwrap();
        let signer = started.app().keys.current().manifests().verifying_key();
        let payload = proof::dsse::verify_as(KEYS_TYPE, &envelope, &[signer]).unwrap();
        let list: KeyList = serde_json::from_slice(&payload).unwrap();
        assert_eq!(
            fingerprint(&list.of(KeyUse::Manifests, list.issued_at)[0]),
            started.server.ready.fingerprint
        );
        assert_eq!(list.log_id, started.server.ready.log_id);
    }
    for path in ["/healthz", "/readyz", "/docs", "/openapi.json", "/metrics"] {
        let response = started.http.get(started.control(path)).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
    }
    let schema = started.control("/v1/schemas/app-config/component.json");
    let schema: Value = started.http.get(schema).send().await.unwrap().json().await.unwrap();
    assert!(schema["oneOf"].is_array(), "{schema}");
    let none = started.http.get(started.control("/v1/schemas/app-config/x")).send().await.unwrap();
    assert_eq!(none.status(), StatusCode::NOT_FOUND);
    // The Runner API does not expose metrics.
    let metrics = started.http.get(started.runner("/metrics")).send().await.unwrap();
    assert_eq!(metrics.status(), StatusCode::NOT_FOUND);
    let nothing = started.http.get(started.control("/nope")).send().await.unwrap();
    assert_eq!(nothing.headers()["content-type"], "application/problem+json");
    assert_eq!(nothing.json::<Value>().await.unwrap()["code"], "not_found");
    started.server.stop().await;
}

#[tokio::test]
async fn control_api_accepts_only_principal_tokens() {
    let started = Started::new().await;
    let url = started.control("/v1/whoami");
    let response = started.http.get(&url).bearer_auth(started.owner_token()).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let runner = domain::ids::RunnerId(ulid::Ulid::new());
    let app = started.app();
    let mode = schemas::runner::RunnerMode::Build;
    let access = app.tokens.access(runner, (mode, None), 1, app.now()).unwrap();
    for (token, code) in [
        ("stead_none-of-ours".to_string(), "token_unknown"),
        ("stead_enrol_01ARZ3NDEKTSV4RRFFQ69G5FAV_x".into(), "token_type_mismatch"),
        (access, "token_type_mismatch"),
        (String::new(), "token_missing"),
    ] {
        let response = started.http.get(&url).bearer_auth(&token).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(response.json::<Value>().await.unwrap()["code"], code, "{token}");
    }
    started.server.stop().await;
}

#[tokio::test]
async fn stop_ends_open_connections_and_accepts_no_new_ones() {
    let started = Started::new().await;
    let url = started.control("/healthz");
    // A keep-alive connection, and a connection that sends nothing.
    started.http.get(&url).send().await.unwrap();
    let address = url.trim_start_matches("http://").trim_end_matches("/healthz").to_string();
    let silent = tokio::net::TcpStream::connect(&address).await.unwrap();
    let since = Instant::now();
    started.server.stop().await;
    assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
    assert!(client().get(&url).send().await.is_err());
    drop(silent);
}

#[tokio::test]
async fn unavailable_database_makes_the_server_unready_but_alive() {
    let started = Started::new().await;
    started.app().pool.close().await;
    let ready = started.http.get(started.control("/readyz")).send().await.unwrap();
    assert_eq!(ready.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(ready.json::<Value>().await.unwrap()["code"], "unavailable");
    let alive = started.http.get(started.control("/healthz")).send().await.unwrap();
    assert_eq!(alive.status(), StatusCode::OK);
    started.server.stop().await;
}

#[tokio::test]
async fn tokens_and_revocations_apply_to_all_servers() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let database = event_log::testing::fresh_database().await.unwrap();
    let first = Server::start(options(one.path(), &database.url)).await.unwrap();
    let second = Server::start(options(two.path(), &database.url)).await.unwrap();
    assert!(first.ready.first_start && !second.ready.first_start, "one owner per log");
    assert_eq!(second.ready.owner_token_file, None);
    let owner = std::fs::read_to_string(first.ready.owner_token_file.as_ref().unwrap()).unwrap();

    let http = client();
    let tokens = format!("{}/v1/tokens", first.ready.control);
    let created =
        http.post(&tokens).bearer_auth(owner.trim()).json(&serde_json::json!({"role": "viewer"}));
    let created: Value = created.send().await.unwrap().json().await.unwrap();
    let token = created["token"].as_str().unwrap();
    let whoami = format!("{}/v1/whoami", second.ready.control);
    let wait_for_status = async |expected: StatusCode| {
        let since = Instant::now();
        while http.get(&whoami).bearer_auth(token).send().await.unwrap().status() != expected {
            assert!(since.elapsed() < Duration::from_secs(10), "it never became {expected}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    wait_for_status(StatusCode::OK).await;
    let revoke = http.delete(format!("{tokens}/{}", created["id"].as_str().unwrap()));
    assert!(revoke.bearer_auth(owner.trim()).send().await.unwrap().status().is_success());
    wait_for_status(StatusCode::UNAUTHORIZED).await;
    first.stop().await;
    second.stop().await;
}

/// Creates a run of a new install. Its only step waits for an approval that expires in `days` days.
async fn waits_for_approval(server: &Server, run: domain::ids::RunId, days: i64) {
    use domain::{
        actor::Actor,
        ids::{AppId, BuildId, ComponentId, InstallId, JobId, StepId},
        install::{Install, InstallCommand},
        run::{
            Approval, Cause, Operation, Request, Run, RunCommand, RunKind, StepPlan, StepSpec,
            Target,
        },
    };
    use ulid::Ulid;
    let (install, step) = (InstallId(Ulid::new()), StepId(Ulid::new()));
    let expires_at = server.app.now() + chrono::TimeDelta::days(days);
    let call = crate::execute::Call::of(event_log::Meta::new(Actor::System, run.to_string()));
    let requested = server.app.engine.transact(&call, move |unit| {
        Box::pin(async move {
            let create = InstallCommand::Create {
                app: AppId(Ulid::new()),
                name: "acme".into(),
                config_version: 1,
                inputs: Default::default(),
                auto_approve: false,
            };
            unit.handle::<Install>(install, create).await?;
            let request = Request {
                install,
                kind: RunKind::Deploy,
                cause: Cause::Requested,
                by: Actor::System,
                config_version: 1,
                reason: None,
                plan_all: false,
            };
            let (component, build) = (ComponentId(Ulid::new()), BuildId(Ulid::new()));
            let (name, depends_on) = ("base".into(), Default::default());
            let target = Target::Component { component, name, build, depends_on };
            let (operation, depends_on, fingerprint) = (Operation::Apply, vec![], None);
            let steps = vec![StepSpec {
                step,
                target,
                operation,
                depends_on,
                fingerprint,
                options: Default::default(),
            }];
            let request = RunCommand::Request { request, steps, position: 1 };
            unit.handle::<Run>(run, request).await?;
            let job = JobId(Ulid::new());
            unit.handle::<Run>(run, RunCommand::StartStep { step, job }).await?;
            let digest =
                |n: u8| format!("sha256:{n:064x}").parse::<domain::digest::Digest>().unwrap();
            let (digest, summary) = (digest(1), digest(2));
            let plan = StepPlan {
                digest,
                summary,
                details: None,
                noop: false,
                add: 1,
                change: 0,
                destroy: 0,
            };
            let approval = Approval::Principal { expires_at };
            let preflight = JobId(Ulid::new());
            for command in [
                RunCommand::StartPreflight { job: preflight },
                RunCommand::RecordChecks { job: preflight, checks: vec![] },
                RunCommand::RecordPlan { job, plan, approval },
            ] {
                unit.handle::<Run>(run, command).await?;
            }
            Ok(())
        })
    });
    requested.await.unwrap();
}

#[tokio::test]
async fn approval_expires() {
    use domain::{
        ids::RunId,
        run::{Outcome, Run, Skip, StepState},
    };
    use ulid::Ulid;
    let data = tempfile::tempdir().unwrap();
    let database = event_log::testing::fresh_database().await.unwrap();
    let start = async |clock| Server::start_with(options(data.path(), &database.url), clock).await;
    let server = start(system_clock()).await.unwrap();
    let (due, not_yet) = (RunId(Ulid::new()), RunId(Ulid::new()));
    waits_for_approval(&server, not_yet, 9).await;
    waits_for_approval(&server, due, 7).await;
    server.stop().await;

    let later: Clock = Arc::new(|| (system_clock())() + chrono::TimeDelta::days(8));
    let server = start(later).await.unwrap();
    let since = Instant::now();
    let run = loop {
        let run = server.app.engine.load::<Run>(due).await.unwrap();
        if run.outcome.is_some() {
            break run;
        }
        assert!(since.elapsed() < Duration::from_secs(10), "{run:?}");
        tokio::time::sleep(Duration::from_millis(25)).await;
    };
    let expired = StepState::Skipped { reason: Skip::Expired };
    assert_eq!((&run.steps[0].state, run.outcome), (&expired, Some(Outcome::Expired)));
    // The loop has run, and the other approval is not due yet.
    let waits = server.app.engine.load::<Run>(not_yet).await.unwrap();
    assert!(matches!(waits.steps[0].state, StepState::AwaitingApproval { .. }), "{waits:?}");
    server.stop().await;
}

#[tokio::test]
async fn data_directory_allows_owner_recovery() {
    let started = Started::new().await;
    let (lost, database) = (started.owner_token(), started.database.clone());
    started.server.stop().await;
    let again = Options { recover_owner: true, ..options(started.data.path(), &database) };
    let server = Server::start(again).await.unwrap();
    assert!(!server.ready.first_start);
    let token = std::fs::read_to_string(server.ready.owner_token_file.as_ref().unwrap()).unwrap();
    assert_ne!(token.trim(), lost);
    let tokens = format!("{}/v1/tokens", server.ready.control);
    let response = client().get(&tokens).bearer_auth(token.trim()).send().await.unwrap();
    let tokens_list: Value = response.json().await.unwrap();
    assert_eq!(tokens_list["items"].as_array().unwrap().len(), 2, "{tokens_list}");
    server.stop().await;
}
