//! Tests of copies with a registry that fails.

use std::{
    collections::HashMap,
    sync::Mutex,
    time::{Duration, SystemTime},
};

use domain::{digest::Digest, image::ImageReference};
use oci_layout::{Layout, MANIFEST_LIMIT, sha256};
use serde_json::json;

use self::fake::{Fake, INDEX, MANIFEST};
use super::{auth::Auth, *};

mod fake;

/// Returns the endpoint of a registry, with short timeouts.
fn endpoint(fake: &Fake) -> Endpoint {
    let mut endpoint = Endpoint::of_host(&fake.host).unwrap();
    endpoint.idle_timeout = Duration::from_millis(500);
    endpoint.patience = Some(Duration::from_secs(3));
    endpoint
}

fn reference(fake: &Fake, tag: &str) -> ImageReference {
    ImageReference::new(&format!("{}/x", fake.host), tag).unwrap()
}

async fn resolved(fake: &Fake, tag: &str) -> Result<(Digest, Tree), RegistryError> {
    let platforms = ["linux/amd64".parse().unwrap()];
    resolve(&endpoint(fake), "x", &reference(fake, tag), &platforms).await
}

async fn error_of(fake: &Fake, tag: &str) -> String {
    resolved(fake, tag).await.unwrap_err().to_string()
}

async fn copied(from: &Fake, to: &Fake, tree: &Tree) -> Result<Progress, RegistryError> {
    let source = Source::Registry { endpoint: endpoint(from).into(), name: "x".into() };
    let target = Target::Registry {
        endpoint: endpoint(to).into(),
        name: "x".into(),
        tag: Some("1-a".into()),
        known: Default::default(),
    };
    let progress = Default::default();
    copy(&source, &target, tree, &progress).await?;
    assert!(target.has(&tree.digest).await?);
    Ok(std::sync::Arc::into_inner(progress).unwrap())
}

/// Layers whose bytes depend on their position, so that a shifted or repeated byte changes a digest.
fn layers() -> Vec<Vec<u8>> {
    let bytes = |n: u32| (0..40_000 * n).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8);
    (1..7).map(|n| bytes(n).collect()).collect()
}

#[tokio::test]
async fn a_copy_succeeds_although_every_transfer_is_cut() {
    let (from, to) = (Fake::start(), Fake::start());
    let image = from.image("1", &layers());
    let (_, tree) = resolved(&from, "1").await.unwrap();
    for fake in [&from, &to] {
        fake.set(|state| state.cuts = true);
    }
    copied(&from, &to, &tree).await.unwrap();
    {
        let copy = to.state.lock().unwrap();
        assert!(tree.blobs.iter().all(|blob| copy.blobs[&blob.digest].len() as u64 == blob.size));
        assert!(copy.documents.contains_key(&image.to_string()));
    }
    assert!(from.count(|request| request.headers.contains_key("range")) > 0, "it did not resume");
    assert!(to.count(|request| request.headers.contains_key("content-range")) > 0);
    // a second copy sends nothing
    let sent = from.state.lock().unwrap().sent;
    copied(&from, &to, &tree).await.unwrap();
    assert_eq!(from.state.lock().unwrap().sent, sent);
}

#[tokio::test]
async fn an_upload_that_is_cut_after_one_byte_begins_again() {
    let (from, to) = (Fake::start(), Fake::start());
    from.image("1", &layers());
    let (_, tree) = resolved(&from, "1").await.unwrap();
    to.set(|state| (state.cuts, state.first_cut) = (true, Some(1)));
    copied(&from, &to, &tree).await.unwrap();
    let copy = to.state.lock().unwrap();
    assert!(tree.blobs.iter().all(|blob| copy.blobs[&blob.digest].len() as u64 == blob.size));
}

#[tokio::test]
async fn a_layout_gets_complete_blobs_from_a_registry_without_ranges() {
    let from = Fake::start();
    from.image("1", &layers());
    let (_, tree) = resolved(&from, "1").await.unwrap();
    from.set(|state| state.ignores_ranges = true);
    from.set(|state| state.failures = [500, 503, 429, 408].into());
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::new(dir.path());
    // A blob of a removed artifact, which a cleanup could delete during the copy.
    let known = layout.put(&layers()[0]).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(7200);
    layout.touch(&known, long_ago);
    let target =
        Target::Layout { layout: layout.clone(), repository: "a/x".into(), now: SystemTime::now() };
    let source = Source::Registry { endpoint: endpoint(&from).into(), name: "x".into() };
    copy(&source, &target, &tree, &Default::default()).await.unwrap();
    assert!(layout.complete(&tree.digest));
    let used = std::fs::metadata(layout.path(&known)).unwrap().modified().unwrap();
    assert!(used > long_ago, "a cleanup would delete the blob");
}

#[tokio::test]
async fn lasting_failures_end_with_their_cause() {
    let from = Fake::start();
    from.image("1", &[]);
    for (status, expected) in [(429, "log in"), (500, "status 500"), (403, "docker login")] {
        from.set(|state| state.failures = vec![status; 100].into());
        let error = error_of(&from, "1").await;
        assert!(error.contains(expected), "{error}");
    }
    from.set(|state| state.failures.clear());
    from.set(|state| state.hangs = 100);
    let error = error_of(&from, "1").await;
    assert!(error.contains("did not respond"), "{error}");
}

#[tokio::test]
async fn a_blob_or_a_manifest_with_another_digest_is_not_used() {
    let (from, to) = (Fake::start(), Fake::start());
    from.image("1", &layers());
    let (_, tree) = resolved(&from, "1").await.unwrap();
    let blob = tree.blobs.iter().max_by_key(|blob| blob.size).unwrap().clone();
    from.set(|state| {
        state.blobs.insert(blob.digest.clone(), vec![0; usize::try_from(blob.size).unwrap()]);
    });
    let error = copied(&from, &to, &tree).await.unwrap_err();
    assert!(
        matches!(&error, RegistryError::WrongDigest { digest, .. } if *digest == blob.digest),
        "{error}"
    );
    assert!(!to.state.lock().unwrap().blobs.contains_key(&blob.digest));
    let named = sha256(b"other").to_string();
    let manifest = from.state.lock().unwrap().documents["1"].clone();
    from.set(|state| {
        state.documents.insert(named.clone(), manifest);
    });
    let error = error_of(&from, &named).await;
    assert!(error.contains("its bytes have another digest"), "{error}");
}

#[tokio::test]
async fn oversized_and_nested_manifests_are_rejected() {
    let from = Fake::start();
    let image = from.image("image", &[]);
    let entry = |media_type: &str, digest: &Digest| {
        let platform = json!({"os": "linux", "architecture": "amd64"});
        json!({"mediaType": media_type, "digest": digest, "size": 1, "platform": platform})
    };
    let index = |entry| json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]});
    let inner = from.document("inner", INDEX, &index(entry(MANIFEST, &image)));
    // An index that states that another index is a manifest.
    from.document("nested", INDEX, &index(entry(MANIFEST, &inner)));
    from.document("declared", INDEX, &index(entry(INDEX, &inner)));
    let padding = "x".repeat(usize::try_from(MANIFEST_LIMIT).unwrap());
    from.document("large", MANIFEST, &json!({"schemaVersion": 2, "padding": padding}));
    let layer =
        |n: usize| json!({"mediaType": "x/y", "digest": sha256(&n.to_le_bytes()), "size": 1});
    let many: Vec<_> = (0..2_001).map(layer).collect();
    let config = json!({"mediaType": "x/y", "digest": sha256(b"c"), "size": 1});
    let many = json!({"schemaVersion": 2, "config": config, "layers": many});
    let many = from.document("many-manifest", MANIFEST, &many);
    from.document("many", INDEX, &index(entry(MANIFEST, &many)));
    for (tag, expected) in [
        ("nested", "a nested index"),
        ("declared", "the nested index"),
        ("large", "exceeds"),
        ("many", "more than 2000 blobs"),
    ] {
        let error = error_of(&from, tag).await;
        assert!(error.contains(expected), "{tag}: {error}");
    }
}

#[tokio::test]
async fn a_redirect_to_another_host_gets_no_credential() {
    let (from, storage, to) = (Fake::start(), Fake::start(), Fake::start());
    from.image("1", &layers());
    storage.image("1", &layers());
    let mut registry = endpoint(&from);
    let scope = auth::Scope::pull("x");
    let secret = reqwest::header::HeaderValue::from_static("Bearer secret");
    registry.auth = Auth::Challenge(Mutex::new(HashMap::from([(scope, secret)])));
    let platforms = ["linux/amd64".parse().unwrap()];
    let reference = reference(&from, "1");
    let (_, tree) = resolve(&registry, "x", &reference, &platforms).await.unwrap();
    from.set(|state| state.redirect = Some(format!("http://{}/v2/x/blobs", storage.host)));
    let source = Source::Registry { endpoint: registry.into(), name: "x".into() };
    let target = Target::Registry {
        endpoint: endpoint(&to).into(),
        name: "x".into(),
        tag: None,
        known: Default::default(),
    };
    copy(&source, &target, &tree, &Default::default()).await.unwrap();
    let has_credential = |request: &fake::Request| request.headers.contains_key("authorization");
    assert_eq!(from.count(|request| !has_credential(request)), 0);
    assert_eq!(storage.count(has_credential), 0);
    assert!(storage.count(|request| request.path.contains("/blobs/")) > 0);
    // A redirect loop and another scheme end with an error.
    for to in [format!("http://{}/v2/x/blobs", from.host), "file:///etc".to_owned()] {
        from.set(|state| state.redirect = Some(to.clone()));
        let error =
            copied(&from, &storage, &tree_with_new_blob(&from)).await.unwrap_err().to_string();
        assert!(error.contains("redirects"), "{error}");
    }
}

#[tokio::test]
async fn an_expired_token_is_requested_again() {
    let from = Fake::start();
    from.image("1", &[]);
    let mut registry = endpoint(&from);
    let expired = reqwest::header::HeaderValue::from_static("Basic expired");
    registry.auth = Auth::Challenge(Mutex::new(HashMap::from([(auth::Scope::pull("x"), expired)])));
    // As ECR responds.
    from.set(|state| state.failures.push_back(403));
    let platforms = ["linux/amd64".parse().unwrap()];
    resolve(&registry, "x", &reference(&from, "1"), &platforms).await.unwrap();
    assert_eq!(from.count(|request| request.headers.contains_key("authorization")), 1);
    // Without a known token, 403 is final.
    from.set(|state| state.failures.push_back(403));
    let error = resolve(&registry, "x", &reference(&from, "1"), &platforms).await.unwrap_err();
    assert!(matches!(error, RegistryError::Denied { .. }), "{error}");
}

#[tokio::test]
async fn a_host_behind_a_redirect_names_no_token_server() {
    let (from, storage) = (Fake::start(), Fake::start());
    from.image("1", &layers());
    let (_, tree) = resolved(&from, "1").await.unwrap();
    from.set(|state| state.redirect = Some(format!("http://{}/v2/x/blobs", storage.host)));
    let realm = format!("Bearer realm=\"http://{}/token\",service=\"x\"", storage.host);
    storage.set(|state| state.challenge = Some(realm));
    let error = copied(&from, &Fake::start(), &tree).await.unwrap_err();
    assert!(matches!(error, RegistryError::Denied { .. }), "{error}");
    assert!(storage.count(|request| request.path.contains("/blobs/")) > 0);
    assert_eq!(storage.count(|request| request.path.starts_with("/token")), 0);
}

/// Returns a tree with one blob that no other registry has.
fn tree_with_new_blob(fake: &Fake) -> Tree {
    let content = b"a blob of this registry only".to_vec();
    let blob = oci_layout::Blob::of("x/y", &content);
    fake.set(|state| {
        state.blobs.insert(blob.digest.clone(), content);
    });
    Tree { documents: vec![], digest: blob.digest.clone(), blobs: vec![blob] }
}

#[tokio::test]
async fn a_registry_that_requires_unknown_credentials_names_the_remedy() {
    let from = Fake::start();
    from.image("1", &[]);
    from.set(|state| state.challenge = Some("Basic realm=\"x\"".into()));
    let error = error_of(&from, "1").await;
    assert!(error.contains("docker login"), "{error}");
    // Credentials go only to a token server with TLS, or with the scheme of the registry.
    from.set(|state| state.challenge = Some("Bearer realm=\"ftp://x/token\"".into()));
    let error = error_of(&from, "1").await;
    assert!(error.contains("token server"), "{error}");
}
