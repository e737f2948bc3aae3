//! Tests of reads from a registry of the vendor that fails.
use axum::body::{Body, Bytes, to_bytes};
use domain::ids::RunnerId;
use futures::StreamExt as _;
use oci_layout::Blob;
use serde_json::json;
use ulid::Ulid;

use super::{fake::Fake, *};

const REPOSITORY: &str = "shop/store";

fn repository() -> Repository {
    REPOSITORY.parse().unwrap()
}

fn registry(fake: &Fake, reachable: Reachable) -> VendorRegistry {
    VendorRegistry::new(fake.location(), reachable).unwrap()
}

/// Returns bytes of several chunks, which depend on their position.
fn large(length: usize) -> Bytes {
    (0..length).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn blob(bytes: &Bytes) -> Blob {
    Blob::of("application/octet-stream", bytes)
}

fn runner() -> RunnerId {
    RunnerId(Ulid::new())
}

async fn read(
    registry: &Arc<VendorRegistry>,
    bytes: &Bytes,
    from: u64,
) -> Result<Body, RegistryError> {
    registry.blob(&repository(), blob(bytes), (runner(), from)).await
}

async fn bytes_of(body: Body) -> Result<Bytes, axum::Error> {
    to_bytes(body, usize::MAX).await
}

#[tokio::test]
async fn a_blob_is_resumed_where_the_registry_cut_it() {
    let fake = Fake::start().await;
    let content = large(3 << 20);
    let digest = fake.store(REPOSITORY, "blobs", content.clone());
    let registry = Arc::new(registry(&fake, Reachable::Public));
    fake.content().cuts = 3;
    let body = read(&registry, &content, 0).await.unwrap();
    assert_eq!(bytes_of(body).await.unwrap(), content);
    assert_eq!(fake.count(&format!("{digest} from 0")), 1, "{:?}", fake.content().requests);
    assert_eq!(fake.content().requests.len(), 4);
    // A runner resumes its own download, and the registry cuts this one too.
    fake.content().cuts = 1;
    let body = read(&registry, &content, 1_000_001).await.unwrap();
    assert_eq!(bytes_of(body).await.unwrap(), content.slice(1_000_001..));
}

#[tokio::test]
async fn a_blob_with_other_bytes_is_read_again_before_it_is_refused() {
    let fake = Fake::start().await;
    let registry = Arc::new(registry(&fake, Reachable::Public));
    // A small blob is verified before the response begins.
    let small = large(10);
    fake.store(REPOSITORY, "blobs", small.clone());
    fake.content().wrong = 1;
    let body = read(&registry, &small, 0).await.unwrap();
    assert_eq!(bytes_of(body).await.unwrap(), small);
    fake.content().wrong = 2;
    let refused = read(&registry, &small, 0).await;
    assert!(matches!(refused, Err(RegistryError::WrongDigest { .. })));

    // Of a large one, the response ends without its last bytes.
    let content = large(3 << 20);
    fake.store(REPOSITORY, "blobs", content.clone());
    fake.content().wrong = 1;
    let body = read(&registry, &content, 0).await.unwrap();
    assert!(bytes_of(body).await.is_err());
    let body = read(&registry, &content, 0).await.unwrap();
    assert_eq!(bytes_of(body).await.unwrap(), content, "one broken transfer is no damage");
    fake.content().wrong = 2;
    for _ in 0..2 {
        let body = read(&registry, &content, 0).await.unwrap();
        assert!(bytes_of(body).await.is_err());
    }
    let requests = fake.content().requests.len();
    let refused = read(&registry, &content, 0).await;
    assert!(matches!(refused, Err(RegistryError::WrongDigest { .. })));
    assert_eq!(fake.content().requests.len(), requests);
}

#[tokio::test]
async fn a_receiver_that_stalls_loses_its_download() {
    let fake = Fake::start().await;
    let content = large(8 << 20);
    fake.store(REPOSITORY, "blobs", content.clone());
    let mut registry = registry(&fake, Reachable::Public);
    registry.times = Times { stalled: Duration::from_millis(200), ..Times::default() };
    let (registry, slow) = (Arc::new(registry), runner());
    let mut stalled = vec![];
    let repository = repository();
    for _ in 0..40 {
        let begun = registry.blob(&repository, blob(&content), (slow, 0));
        stalled.push(timeout(Duration::from_secs(10), begun).await.unwrap().unwrap());
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    // The downloads are gone, although their runner reads now.
    for body in stalled {
        let mut chunks = body.into_data_stream();
        let mut length = 0;
        while let Some(Ok(chunk)) = chunks.next().await {
            length += chunk.len();
        }
        assert!(length < content.len());
    }
}

#[tokio::test]
async fn a_dropped_response_ends_its_download() {
    let fake = Fake::start().await;
    let content = large(8 << 20);
    fake.store(REPOSITORY, "blobs", content.clone());
    let (registry, slow) = (Arc::new(registry(&fake, Reachable::Public)), runner());
    let repository = repository();
    for _ in 0..40 {
        let begun = registry.blob(&repository, blob(&content), (slow, 0));
        drop(timeout(Duration::from_secs(10), begun).await.unwrap().unwrap());
    }
}

#[tokio::test]
async fn a_document_is_found_only_in_its_own_repository() {
    let fake = Fake::start().await;
    let digest = fake.artifact(REPOSITORY, &large(10));
    let registry = registry(&fake, Reachable::Public);
    assert!(registry.artifact_size(&repository(), &digest).await.unwrap() > 10);
    let other: Repository = "shop/other".parse().unwrap();
    let missing = registry.artifact_size(&other, &digest).await;
    assert!(matches!(missing, Err(RegistryError::Missing { .. })), "{missing:?}");
    // A registry has no repositories in upper case.
    assert!(registry.can_have(&repository()));
    assert!(!registry.can_have(&"shop/Store".parse().unwrap()));
}

#[tokio::test]
async fn the_check_of_an_index_has_one_time_limit_and_a_maximum_of_images() {
    let fake = Fake::start().await;
    let index = |images: usize| {
        let image = |n: usize| {
            let digest = fake.artifact(REPOSITORY, &large(n + 1));
            let platform =
                json!({"os": "linux", "architecture": "amd64", "variant": n.to_string()});
            let media_type = "application/vnd.oci.image.manifest.v1+json";
            json!({"mediaType": media_type, "digest": digest, "size": 1, "platform": platform})
        };
        let manifests: Vec<_> = (0..images).map(image).collect();
        let media_type = "application/vnd.oci.image.index.v1+json";
        fake.document(
            REPOSITORY,
            &json!({"schemaVersion": 2, "mediaType": media_type, "manifests": manifests}),
        )
    };
    let mut registry = registry(&fake, Reachable::Public);
    let size = registry.artifact_size(&repository(), &index(2)).await.unwrap();
    assert!(size > 3);
    let error = registry.artifact_size(&repository(), &index(17)).await.unwrap_err();
    assert!(error.to_string().contains("more than 16 images"), "{error}");
    // Each document is in time, but all of them are not.
    registry.times = Times { check: Duration::from_millis(600), ..Times::default() };
    let slow = index(8);
    registry.documents().clear();
    fake.content().delay = Duration::from_millis(200);
    let error = registry.artifact_size(&repository(), &slow).await.unwrap_err();
    assert!(matches!(error, RegistryError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn the_server_follows_a_registry_only_to_public_addresses() {
    let (fake, internal) = (Fake::start().await, Fake::start().await);
    let content = large(10);
    internal.store(REPOSITORY, "blobs", content.clone());
    let port = internal.location().host().rsplit_once(':').unwrap().1.to_owned();
    let mut guarded = registry(&fake, Reachable::Public);
    guarded.times = Times { response: Duration::from_secs(1), ..Times::default() };
    let guarded = Arc::new(guarded);
    let refused = [
        ("127.0.0.1", Code::Invalid, "start the server with --registry-to-private-networks"),
        // The resolver cannot tell a private address from a failure.
        ("localhost", Code::RegistryUnavailable, "cannot reach the registry"),
    ];
    for (host, code, text) in refused {
        let to = format!("http://{host}:{port}/v2/vendor/{REPOSITORY}/blobs");
        fake.content().redirect = Some(to);
        let Err(error) = read(&guarded, &content, 0).await else { panic!("{host}") };
        assert_eq!(problem(&error).code, code, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
    assert_eq!(internal.content().requests.len(), 0);
    // An operator can permit it.
    fake.content().redirect = Some(internal.blobs_of(REPOSITORY));
    let open = Arc::new(registry(&fake, Reachable::All));
    let body = read(&open, &content, 0).await.unwrap();
    assert_eq!(bytes_of(body).await.unwrap(), content);
}

#[tokio::test]
async fn a_registry_that_refuses_the_server_is_unavailable() {
    let fake = Fake::start().await;
    let registry = registry(&fake, Reachable::Public);
    let digest = fake.artifact(REPOSITORY, &large(10));
    for status in [axum::http::StatusCode::UNAUTHORIZED, axum::http::StatusCode::FORBIDDEN] {
        fake.content().status = Some(status);
        let Err(error) = registry.document(&repository(), &digest).await else { panic!() };
        let problem = problem(&error);
        assert_eq!(problem.code, Code::RegistryUnavailable);
        assert!(problem.detail.contains("refused the credentials of the server"));
        // Runners belong to customers.
        assert!(!problem.detail.contains("127.0.0.1"));
    }
    fake.content().status = None;
    assert!(registry.document(&repository(), &digest).await.is_ok());
}
