//! Tests of push and pull over HTTP with a complete server.
use cli::plugins::pack::{Executable, pack};
use domain::{
    actor::Actor,
    digest::Digest,
    ids::{ExecutionId, JobId, SessionId},
    job::{JobCommand, JobKind, LossReason},
};
use event_log::Meta;
use reqwest::{Method, RequestBuilder, StatusCode, header};
use schemas::manifest::{ArtifactRef, PluginArtifact};
use serde_json::{Value, json};
use ulid::Ulid;

mod vendor;

use crate::{
    execute::Call,
    server::testing::{ClaimedJob, Started, append_commands, build_inputs, manifest},
    usecases::plugins::publish_packed,
};

const REPOSITORY: &str = "shop/store";
const LAYER: &[u8] = b"the layer";
const CONFIG: &[u8] = b"{}";

fn digest(bytes: &[u8]) -> Digest {
    event_log::blob::digest(bytes).unwrap()
}

fn image() -> Vec<u8> {
    let descriptor = |kind: &str, bytes: &[u8]| json!({"mediaType": kind, "digest": digest(bytes), "size": bytes.len()});
    let image = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "artifactType": "application/vnd.stead.component.v1",
        "config": descriptor("application/vnd.oci.empty.v1+json", CONFIG),
        "layers": [descriptor("application/vnd.stead.component.layer.v1.tar", LAYER)],
    });
    serde_json::to_vec(&image).unwrap()
}

impl Started {
    fn v2(&self, claimed: &ClaimedJob, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, self.runner(&format!("/v2/{path}"))).bearer_auth(&claimed.token)
    }

    async fn status(&self, claimed: &ClaimedJob, method: Method, path: &str) -> StatusCode {
        self.v2(claimed, method, path).send().await.unwrap().status()
    }

    async fn upload(&self, claimed: &ClaimedJob, named: &Digest, bytes: Vec<u8>) -> StatusCode {
        let begin_response =
            self.v2(claimed, Method::POST, &format!("{REPOSITORY}/blobs/uploads/"));
        let begin_response = begin_response.send().await.unwrap();
        assert_eq!(begin_response.status(), StatusCode::ACCEPTED);
        let location = begin_response.headers()[header::LOCATION].to_str().unwrap().to_string();
        let put = self.http.put(self.runner(&format!("{location}?digest={named}")));
        put.bearer_auth(&claimed.token).body(bytes).send().await.unwrap().status()
    }

    async fn push(&self, claimed: &ClaimedJob) -> Digest {
        for blob in [CONFIG, LAYER] {
            assert_eq!(self.upload(claimed, &digest(blob), blob.into()).await, StatusCode::CREATED);
        }
        let digest = digest(&image());
        let put = self.v2(claimed, Method::PUT, &format!("{REPOSITORY}/manifests/{digest}"));
        assert_eq!(put.body(image()).send().await.unwrap().status(), StatusCode::CREATED);
        digest
    }

    async fn build(&self) -> ClaimedJob {
        let source = event_log::blob::put(&self.app().pool, b"the source").await.unwrap();
        self.held(JobKind::Build, build_inputs(REPOSITORY, &source), vec![]).await
    }
}

fn artifact_refs(digest: &Digest) -> Vec<ArtifactRef> {
    vec![ArtifactRef { repository: REPOSITORY.into(), digest: digest.clone(), size: 1 }]
}

#[tokio::test]
async fn artifact_is_pulled_only_by_jobs_that_name_it() {
    let started = Started::new().await;
    let build = started.build().await;
    let source = format!("{REPOSITORY}/blobs/{}", digest(b"the source"));
    let got = started.v2(&build, Method::GET, &source).send().await.unwrap();
    assert_eq!(got.bytes().await.unwrap(), &b"the source"[..]);

    let artifact = started.push(&build).await;
    let layer = format!("{REPOSITORY}/blobs/{}", digest(LAYER));
    assert_eq!(started.status(&build, Method::HEAD, &layer).await, StatusCode::OK);

    let plan = started.held(JobKind::Plan, json!({}), artifact_refs(&artifact)).await;
    let manifest = format!("{REPOSITORY}/manifests/{artifact}");
    let got = started.v2(&plan, Method::GET, &manifest).send().await.unwrap();
    assert_eq!(got.headers()["docker-content-digest"], artifact.to_string().as_str());
    assert_eq!(got.bytes().await.unwrap(), image());
    // OCI clients send the token as Basic credentials.
    let url = started.runner(&format!("/v2/{layer}"));
    let got = started.http.get(url).basic_auth("job", Some(&plan.token)).send().await.unwrap();
    assert_eq!(got.headers()[header::CONTENT_LENGTH], LAYER.len().to_string().as_str());
    assert_eq!(got.bytes().await.unwrap(), LAYER);

    let other = started.held(JobKind::Plan, json!({}), vec![]).await;
    for path in [&manifest, &layer, &source, &format!("{REPOSITORY}/manifests/latest")] {
        assert_eq!(started.status(&other, Method::GET, path).await, StatusCode::NOT_FOUND);
    }
    // Any OCI tool can read the layout.
    let layout = started.data.path().join("registry").join(REPOSITORY);
    assert!(layout.join("oci-layout").is_file());
    let index: Value =
        serde_json::from_slice(&std::fs::read(layout.join("index.json")).unwrap()).unwrap();
    assert_eq!(index["manifests"][0]["digest"], artifact.to_string());
}

#[tokio::test]
async fn only_a_build_pushes_and_only_into_its_own_repository() {
    let started = Started::new().await;
    let build = started.build().await;
    let other = "shop/other/blobs/uploads/";
    assert_eq!(started.status(&build, Method::POST, other).await, StatusCode::NOT_FOUND);
    let plan = started.held(JobKind::Plan, json!({"repository": REPOSITORY}), vec![]).await;
    let own = format!("{REPOSITORY}/blobs/uploads/");
    assert_eq!(started.status(&plan, Method::POST, &own).await, StatusCode::NOT_FOUND);

    // A wrong digest, an oversized blob, and a manifest before its blobs.
    let wrong = started.upload(&build, &digest(b"something"), b"else".to_vec()).await;
    assert_eq!(wrong, StatusCode::BAD_REQUEST);
    let long = vec![0; 1024 * 1024 + 1];
    let too_long = started.upload(&build, &digest(&long), long.clone()).await;
    assert_eq!(too_long, StatusCode::PAYLOAD_TOO_LARGE);
    let manifest = format!("{REPOSITORY}/manifests/{}", digest(&image()));
    let early = started.v2(&build, Method::PUT, &manifest).body(image()).send().await.unwrap();
    assert_eq!(early.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let uploads = started.data.path().join("registry/.uploads");
    assert_eq!(std::fs::read_dir(uploads).unwrap().count(), 0, "nothing is left of what failed");
}

#[tokio::test]
async fn superseded_execution_is_rejected() {
    let started = Started::new().await;
    let build = started.build().await;
    assert_eq!(started.status(&build, Method::GET, "").await, StatusCode::OK);
    let execution = build.execution;
    let (runner, session) = (domain::ids::RunnerId(Ulid::new()), SessionId(Ulid::new()));
    let claim_id = "again".to_string();
    let next = ExecutionId(Ulid::new());
    let commands = vec![
        JobCommand::DeclareLost { execution, loss_reason: LossReason::NeverSpawned },
        JobCommand::Claim { execution: next, runner, session, claim_id },
    ];
    append_commands(started.app(), build.job, commands).await;
    let rejection = started.v2(&build, Method::GET, "").send().await.unwrap();
    assert_eq!(rejection.status(), StatusCode::UNAUTHORIZED);
    let body: Value = rejection.json().await.unwrap();
    assert_eq!(body["code"], "execution_superseded");
    assert_eq!(body["errors"][0]["code"], "UNAUTHORIZED");
    let unauthenticated = started.http.get(started.runner("/v2/")).send().await.unwrap();
    assert_eq!(unauthenticated.headers()[header::WWW_AUTHENTICATE], "Basic realm=\"stead\"");
}

#[test]
fn pentest_the_registry_is_closed_to_other_users() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("registry");
    std::fs::create_dir(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    crate::registry::Registry::open(dir.path(), 1, None).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn a_plugin_is_pulled_only_by_jobs_that_name_it() {
    let started = Started::new().await;
    // given two published plugins
    let dir = tempfile::tempdir().unwrap();
    let packed = async |name: &str| {
        let path = dir.path().join(name);
        let value = json!({ "protocol": 1, "name": name, "version": "1", "kinds": [] });
        let described = json!({ "type": "result", "id": 1, "value": value });
        std::fs::write(&path, format!("#!/bin/sh\necho '{described}'\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).unwrap();
        let key = ed25519_dalek::SigningKey::from_bytes(&[1; 32]);
        pack(&[Executable { platform: None, path }], &key).await.unwrap()
    };
    let (vault, other) = (packed("vault").await, packed("other").await);
    for plugin in [&vault, &other] {
        let call = Call::of(Meta::new(Actor::System, Ulid::new().to_string()));
        let of = (&plugin.digest, plugin.publisher.as_str());
        let blobs = plugin.blobs.clone();
        assert!(publish_packed(started.app(), &call, &plugin.name, of, blobs).await.unwrap());
    }
    let mut named = manifest(JobId(Ulid::new()), JobKind::Plan, json!({}), vec![]);
    named.plugin.artifact = Some(PluginArtifact {
        repository: "stead.plugins/vault".into(),
        digest: vault.digest.clone(),
        size: 1,
        publisher: vault.publisher.clone(),
    });
    let plan = started.held_manifest(named).await;
    let without = started.held(JobKind::Plan, json!({}), vec![]).await;
    let build = started.build().await;
    // when jobs pull, then only the one that names the plugin gets its index, manifest and blobs
    let get = async |job: &ClaimedJob, kind: &str, name: &str, digest: &Digest| {
        let path = format!("stead.plugins/{name}/{kind}/{digest}");
        started.v2(job, Method::GET, &path).send().await.unwrap()
    };
    let is_document = |bytes: &[u8]| bytes.starts_with(b"{") && bytes.len() > 200;
    let is_manifest = |bytes: &[u8]| is_document(bytes) && !bytes.starts_with(b"{\"payload");
    for (digest, bytes) in &vault.blobs {
        let kind = if is_manifest(bytes) { "manifests" } else { "blobs" };
        let got = get(&plan, kind, "vault", digest).await;
        assert_eq!(got.status(), StatusCode::OK, "{kind} {digest}");
        assert_eq!(got.bytes().await.unwrap(), *bytes);
        for job in [&without, &build] {
            assert_eq!(get(job, kind, "vault", digest).await.status(), StatusCode::NOT_FOUND);
        }
    }
    for (digest, bytes) in &other.blobs {
        let kind = if is_manifest(bytes) { "manifests" } else { "blobs" };
        for name in ["vault", "other"] {
            // Both plugins have the empty config.
            let shared = name == "vault" && vault.blobs.iter().any(|(known, _)| known == digest);
            let status = get(&plan, kind, name, digest).await.status();
            assert_eq!(status == StatusCode::OK, shared, "{kind} {name} {digest}");
        }
    }
    // No job pushes there.
    let path = "stead.plugins/vault/blobs/uploads/";
    for job in [&plan, &build] {
        assert_eq!(started.status(job, Method::POST, path).await, StatusCode::NOT_FOUND);
    }
    started.server.stop().await;
}
