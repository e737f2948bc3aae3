//! Rejected requests: their codes, and checks that they change nothing.
use std::{io::Read as _, time::Duration};

use cli::client::{Client, server_events};
use domain::ids::{PrincipalId, TokenId};
use ed25519_dalek::SigningKey;
use futures::StreamExt as _;
use schemas::{
    control::{
        PageQuery, ReasonBody,
        audit::ChangesQuery,
        installs::UpdateInstall,
        tokens::{CreateToken, Role},
    },
    runner::sign_install_keys,
};
use serde_json::{Value, json};
use ulid::Ulid;

use super::{bundle, client, client_with_role, new_install, owner, rejection, with_install};
use crate::server::testing::Started;

#[tokio::test]
async fn each_role_has_only_its_permissions() {
    let (started, _, _) = with_install().await;
    let viewer = client_with_role(&started, Role::Viewer).await;
    let auditor = client_with_role(&started, Role::Auditor).await;
    let approver = client_with_role(&started, Role::Approver).await;
    for who in [&viewer, &auditor, &approver] {
        assert!(who.install("acme").await.is_ok());
        let response = who.create_install(&new_install("beta")).await;
        assert_eq!(rejection(response), (403, "forbidden".into()));
        assert_eq!(rejection(who.sync("shop", bundle("3"), false).await).0, 403);
        assert_eq!(rejection(who.tokens(&PageQuery::default()).await).0, 403);
    }
    assert!(auditor.events(&Default::default()).await.is_ok());
    assert_eq!(rejection(viewer.events(&Default::default()).await).0, 403);
    assert_eq!(rejection(approver.events(&Default::default()).await).0, 403);
}

#[tokio::test]
async fn revoked_token_is_rejected_immediately() {
    let started = Started::new().await;
    let owner = owner(&started);
    let request = CreateToken { role: Role::Viewer, name: None, expires_in_s: Some(3600) };
    let created = owner.create_token(&request).await.unwrap();
    let viewer = client(&started, &created.token.unwrap());
    assert_eq!(viewer.whoami().await.unwrap().principal, created.principal);
    assert!(owner.revoke_token(created.id).await.unwrap().changed);
    assert_eq!(rejection(viewer.whoami().await), (401, "token_revoked".into()));
    assert!(!owner.revoke_token(created.id).await.unwrap().changed);
    assert_eq!(rejection(client(&started, "stead_nothing").whoami().await).1, "token_unknown");
    let states: Vec<_> = owner.tokens(&PageQuery::default()).await.unwrap().items;
    assert!(states.iter().any(|token| token.id == created.id && token.state == "revoked"));
}

#[tokio::test]
async fn open_stream_ends_when_its_token_is_revoked() {
    let started = Started::new().await;
    let owner = owner(&started);
    let request = CreateToken { role: Role::Viewer, name: None, expires_in_s: None };
    let created = owner.create_token(&request).await.unwrap();
    let viewer = client(&started, &created.token.unwrap());
    let changes = server_events(viewer.changes(&ChangesQuery::default()).await.unwrap());
    owner.revoke_token(created.id).await.unwrap();
    let last = changes.map(Result::unwrap).fold(None, async |_, event| Some(event));
    let last = tokio::time::timeout(Duration::from_secs(20), last).await.unwrap().unwrap();
    assert_eq!((last.event.as_str(), last.data.as_str()), ("end", "token_revoked"));
}

#[tokio::test]
async fn last_token_of_an_owner_is_not_revoked() {
    let started = Started::new().await;
    let first = owner(&started);
    let list = async |who: &Client| who.tokens(&PageQuery::default()).await.unwrap().items;
    let id = list(&first).await[0].id;
    assert_eq!(rejection(first.revoke_token(id).await), (409, "rejected".into()));
    let request = CreateToken { role: Role::Owner, name: None, expires_in_s: None };
    let created = first.create_token(&request).await.unwrap();
    let second = client(&started, &created.token.unwrap());
    // If two owners revoke each other's token concurrently, one token remains valid.
    let both = tokio::join!(first.revoke_token(created.id), second.revoke_token(id));
    let refusals = [both.0, both.1].into_iter().filter(|response| response.is_err()).count();
    assert_eq!(refusals, 1);
    let left = if first.whoami().await.is_ok() { &first } else { &second };
    let active = list(left).await.into_iter().filter(|token| token.state == "active");
    assert_eq!(active.count(), 1);
}

#[tokio::test]
async fn role_is_revoked_immediately_and_the_last_owner_remains() {
    let started = Started::new().await;
    let first = owner(&started);
    let me = first.whoami().await.unwrap().principal;
    let request = CreateToken { role: Role::Approver, name: None, expires_in_s: None };
    let created = first.create_token(&request).await.unwrap();
    let other = client(&started, &created.token.unwrap());
    assert!(first.grant_role(created.principal, "auditor").await.unwrap().changed);
    assert!(!first.grant_role(created.principal, "auditor").await.unwrap().changed);
    other.checkpoint().await.unwrap();
    assert!(first.revoke_role(created.principal, "auditor").await.unwrap().changed);
    assert!(!first.revoke_role(created.principal, "auditor").await.unwrap().changed);
    assert_eq!(rejection(other.checkpoint().await), (403, "forbidden".into()));
    assert_eq!(other.whoami().await.unwrap().roles, ["approver"]);
    // Principals cannot grant roles to themselves, and a role cannot be granted to an unknown
    // principal.
    assert_eq!(rejection(other.grant_role(created.principal, "owner").await).0, 403);
    assert_eq!(rejection(first.grant_role(PrincipalId(Ulid::new()), "owner").await).0, 404);
    assert!(matches!(rejection(first.grant_role(me, "king").await).0, 400 | 404));
    // The last owner keeps the role. If two owners revoke each other concurrently, one of them
    // remains.
    assert_eq!(rejection(first.revoke_role(me, "owner").await), (409, "rejected".into()));
    first.grant_role(created.principal, "owner").await.unwrap();
    let both =
        tokio::join!(first.revoke_role(created.principal, "owner"), other.revoke_role(me, "owner"));
    assert_eq!([both.0, both.1].into_iter().filter(|response| response.is_err()).count(), 1);
}

#[tokio::test]
async fn revoked_enrolment_token_is_rejected() {
    let (started, owner, created) = with_install().await;
    let enrolment = created.enrolment.unwrap();
    let why = ReasonBody { reason: Some("sent to the wrong person".into()) };
    assert!(owner.revoke_enrolment_token(enrolment.id, &why).await.unwrap().changed);
    assert!(!owner.revoke_enrolment_token(enrolment.id, &why).await.unwrap().changed);
    let key = SigningKey::from_bytes(&[7; 32]);
    let public = hex::encode(key.verifying_key().as_bytes());
    let body = json!({"token": enrolment.token, "mode": "install", "version": "1.0.0",
        "install_keys": sign_install_keys(1, "11".repeat(32), public.clone(), &key),
        "identity_key": public, "host": {"os": "linux", "arch": "x86_64"}});
    let enrol = async |body: &Value| {
        let url = started.runner("/runner/v1/enrol");
        let response = started.http.post(url).json(body).send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };
    let (status, problem) = enrol(&body).await;
    assert_eq!((status, &problem["code"]), (401, &json!("token_revoked")));
    let none = TokenId(Ulid::new());
    assert_eq!(rejection(owner.revoke_enrolment_token(none, &why).await).0, 404);
    // A used token cannot be revoked. The problem names the runner to revoke instead.
    let another =
        owner.create_enrolment_token("acme", &Default::default()).await.unwrap().enrolment.unwrap();
    let mut body = body;
    body["token"] = json!(another.token);
    let (status, enrolled) = enrol(&body).await;
    assert_eq!(status, 200, "{enrolled}");
    let message = owner.revoke_enrolment_token(another.id, &why).await.unwrap_err().to_string();
    assert!(message.contains("stead runners revoke rnr_"), "{message}");
}

#[tokio::test]
async fn wrong_inputs_name_the_field_and_the_remedy_and_change_nothing() {
    let (started, owner, _) = with_install().await;
    let position = owner.whoami().await.unwrap().position;
    for (name, value, field) in
        [("size", "large", "inputs.size"), ("colour", "red", "inputs.colour")]
    {
        let mut request = new_install("beta");
        request.inputs.insert(name.into(), value.into());
        let message = owner.create_install(&request).await.unwrap_err().to_string();
        assert!(message.contains("invalid"), "{message}");
        let body = serde_json::to_value(&request).unwrap();
        let (_, problem) = post(&started, "/v1/installs", &body).await;
        assert_eq!(problem["errors"][0]["field"], field, "{problem}");
        assert!(problem["errors"][0]["remedy"].is_string(), "{problem}");
    }
    assert_eq!(rejection(owner.create_install(&new_install("Not A Name")).await).0, 422);
    assert_eq!(rejection(owner.create_install(&new_install("acme")).await).1, "name_taken");
    let nothing = UpdateInstall::default();
    assert_eq!(rejection(owner.update_install("acme", &nothing).await).0, 422);
    let far = UpdateInstall { config_version: Some(9), ..UpdateInstall::default() };
    assert_eq!(rejection(owner.update_install("acme", &far).await).0, 404);
    // Policies may have recorded events of builds in the meantime, but none of installs.
    let which = schemas::control::audit::EventsQuery {
        after: Some(position),
        stream: Some("install".into()),
        ..Default::default()
    };
    assert!(owner.events(&which).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn malformed_request_is_rejected_with_a_location() {
    let (started, owner, _) = with_install().await;
    let unknown = json!({"app": "shop", "name": "beta", "colour": "red"});
    let (status, problem) = post(&started, "/v1/installs", &unknown).await;
    assert_eq!((status, &problem["code"]), (400, &json!("invalid_json")));
    assert!(problem["detail"].as_str().unwrap().contains("colour"), "{problem}");
    for (path, status, code) in [
        ("/v1/audit/events?stream=instal", 400, "bad_request"),
        ("/v1/audit/events?type=runs.approved", 400, "bad_request"),
        ("/v1/audit/events?type=run", 400, "bad_request"),
        ("/v1/installs?limit=0", 400, "bad_request"),
        ("/v1/installs?limit=201", 400, "bad_request"),
        ("/v1/installs?colour=red", 400, "bad_request"),
        ("/v1/installs?cursor=..", 400, "invalid_cursor"),
        ("/v1/installs?min_position=x", 400, "bad_request"),
        ("/v1/installs/nobody", 404, "not_found"),
        ("/v1/runs/ins_01ARZ3NDEKTSV4RRFFQ69G5FAV", 404, "not_found"),
        ("/v1/apps/shop/diff?from=1&to=7", 404, "not_found"),
        ("/v1/nothing", 404, "not_found"),
        ("/v1/installs/%00", 400, "bad_request"),
        ("/v1/runs?state=a%00b", 400, "bad_request"),
        ("/v1/whoami?colour=red", 400, "bad_request"),
        ("/v1/installs/acme?stat=x", 400, "bad_request"),
        ("/v1/tokens?cursor=x", 400, "invalid_cursor"),
        ("/v1/whoami?min_position=1", 200, ""),
    ] {
        let request = started.http.get(started.control(path)).bearer_auth(started.owner_token());
        let response = request.send().await.unwrap();
        let found = response.status().as_u16();
        let problem: Value = response.json().await.unwrap();
        let problem_code = problem["code"].as_str().unwrap_or_default();
        assert_eq!((found, problem_code), (status, code), "{path}: {problem}");
    }
    let nul = json!({"app": "sh\0p", "name": "beta", "inputs": {}});
    assert_eq!(post(&started, "/v1/installs", &nul).await.0, 400);
    let request =
        started.http.get(started.control("/v1/changes")).bearer_auth(started.owner_token());
    let response = request.header("last-event-id", "yesterday").send().await.unwrap();
    assert_eq!(response.status(), 400);
    let verify = started.http.post(started.control("/v1/projections/apps/verify"));
    let verify = verify.bearer_auth(started.owner_token()).header("idempotency-key", "once");
    assert_eq!(verify.send().await.unwrap().status(), 400);
    assert_eq!(rejection(owner.sync("shop", "not zstd".into(), false).await).0, 422);
    let not_tar = zstd::encode_all(&b"not a tar"[..], 1).unwrap();
    assert_eq!(rejection(owner.sync("shop", not_tar.into(), false).await).0, 422);
    let bomb = zstd::encode_all(std::io::repeat(0).take(65 << 20), 1).unwrap();
    assert_eq!(rejection(owner.sync("shop", bomb.into(), false).await), (413, "too_large".into()));
}

#[tokio::test]
async fn read_at_a_future_position_returns_retry_after() {
    let (started, owner, _) = with_install().await;
    let far = owner.whoami().await.unwrap().position + 1_000_000;
    let path = started.control(&format!("/v1/installs?min_position={far}"));
    let response = started.http.get(path).bearer_auth(started.owner_token()).send().await.unwrap();
    assert_eq!(response.status(), 503);
    assert!(response.headers().contains_key("retry-after"));
    let problem: Value = response.json().await.unwrap();
    assert_eq!(problem["code"], "projection_lag");
}

async fn post(started: &Started, path: &str, body: &Value) -> (u16, Value) {
    let request = started.http.post(started.control(path)).bearer_auth(started.owner_token());
    let response = request.json(body).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}
