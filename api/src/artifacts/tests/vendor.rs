//! Tests of pushes and pulls of a server with a registry of the vendor.
use super::*;
use crate::registry::fake::Fake;

async fn started(fake: &Fake) -> Started {
    let location = fake.location();
    Started::with(|options| options.registry = Some(location)).await
}

#[tokio::test]
async fn a_runner_pulls_and_resumes_an_artifact_of_the_vendor() {
    let fake = Fake::start().await;
    let started = started(&fake).await;
    let content: axum::body::Bytes = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    let artifact = fake.artifact(REPOSITORY, &content);
    let plan = started.held(JobKind::Plan, json!({}), artifact_refs(&artifact)).await;
    let layer = format!("{REPOSITORY}/blobs/{}", digest(&content));
    fake.content().cuts = 1;
    let got = started.v2(&plan, Method::GET, &layer).send().await.unwrap();
    assert_eq!(got.bytes().await.unwrap(), content);
    let rest = started.v2(&plan, Method::GET, &layer).header(header::RANGE, "bytes=2999990-");
    let rest = rest.send().await.unwrap();
    assert_eq!(rest.status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(rest.headers()[header::CONTENT_RANGE], "bytes 2999990-2999999/3000000");
    assert_eq!(rest.bytes().await.unwrap(), content.slice(2_999_990..));

    // The manifest states the size: HEAD needs no transfer.
    let requests = fake.content().requests.len();
    let head = started.v2(&plan, Method::HEAD, &layer).send().await.unwrap();
    assert_eq!(head.status(), StatusCode::OK);
    assert_eq!(head.headers()[header::CONTENT_LENGTH], "3000000");
    assert_eq!(fake.content().requests.len(), requests);
    let other = started.held(JobKind::Plan, json!({}), vec![]).await;
    assert_eq!(started.status(&other, Method::GET, &layer).await, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_unavailable_registry_is_a_problem_that_a_runner_repeats() {
    let fake = Fake::start().await;
    let started = started(&fake).await;
    let artifact = fake.artifact(REPOSITORY, &LAYER.into());
    let plan = started.held(JobKind::Plan, json!({}), artifact_refs(&artifact)).await;
    let manifest = format!("{REPOSITORY}/manifests/{artifact}");
    fake.content().status = Some(axum::http::StatusCode::FORBIDDEN);
    let refused = started.v2(&plan, Method::GET, &manifest).send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    let body: Value = refused.json().await.unwrap();
    assert_eq!(body["code"], "registry_unavailable");
    assert!(!body.to_string().contains("127.0.0.1"), "{body}");
    fake.content().status = None;
    assert_eq!(started.status(&plan, Method::GET, &manifest).await, StatusCode::OK);
}

#[tokio::test]
async fn a_build_of_before_the_registry_pushes_to_the_server() {
    let fake = Fake::start().await;
    let started = started(&fake).await;
    // The registry hides repositories that it does not have, as Harbor and GHCR do.
    fake.content().status = Some(axum::http::StatusCode::UNAUTHORIZED);
    let build = started.build().await;
    let layer = format!("{REPOSITORY}/blobs/{}", digest(LAYER));
    let manifest = format!("{REPOSITORY}/manifests/{}", digest(&image()));
    for path in [&layer, &manifest] {
        assert_eq!(started.status(&build, Method::HEAD, path).await, StatusCode::NOT_FOUND);
    }
    let artifact = started.push(&build).await;
    for path in [&layer, &manifest] {
        assert_eq!(started.status(&build, Method::HEAD, path).await, StatusCode::OK);
    }
    let plan = started.held(JobKind::Plan, json!({}), artifact_refs(&artifact)).await;
    for path in [&layer, &manifest] {
        assert_eq!(started.status(&plan, Method::GET, path).await, StatusCode::OK);
    }
    assert_eq!(fake.content().requests, Vec::<String>::new());
}
