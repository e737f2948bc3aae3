//! Tests an upload with a scripted server.
use super::*;
use crate::{
    client::scripted::scripted,
    data::{self, Data},
};

struct TestUpload {
    _temp: tempfile::TempDir,
    dir: JobDir,
    upload: LogUpload,
    ids: (JobId, ExecutionId),
}

/// Creates a log of this length, of which nothing was sent.
fn test_upload(length: usize) -> TestUpload {
    let id = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let ids = (format!("job_{id}").parse().unwrap(), format!("exe_{id}").parse().unwrap());
    let temp = tempfile::tempdir().unwrap();
    let dir = Data::open(temp.path()).unwrap().job(ids.1);
    dir.create().unwrap();
    data::replace(&dir.log(), &vec![b'x'; length]).unwrap();
    TestUpload { _temp: temp, dir, upload: LogUpload::new(LogSettings::default()), ids }
}

/// Pushes once per response, and returns the byte ranges that were sent.
async fn push(test: &mut TestUpload, responses: Vec<&'static str>) -> Vec<String> {
    let times = responses.len();
    let (client, requests) = scripted(responses).await;
    for _ in 0..times {
        test.upload.push(&client, test.ids, &test.dir, true).await.unwrap();
    }
    let requests = requests.lock().unwrap();
    let range = |text: &String| {
        let line = text.lines().find_map(|line| line.strip_prefix("content-range: "));
        line.unwrap_or_default().to_owned()
    };
    requests.iter().map(range).collect()
}

const GAP: &str = r#"{"code":"log_gap"}"#;

#[tokio::test]
async fn the_response_sets_the_offset() {
    let mut test = test_upload(300_000);
    let responses = vec![
        r#"202 Accepted|{"committed_bytes":100000}"#,
        r#"202 Accepted|{"committed_bytes":300000}"#,
    ];
    let ranges = push(&mut test, responses).await;
    assert_eq!(ranges, ["bytes 0-262143/*", "bytes 100000-299999/*"]);
    assert_eq!(test.upload.committed_bytes(), 300_000);
    let (client, requests) = scripted(vec![]).await;
    assert!(test.upload.push(&client, test.ids, &test.dir, true).await.unwrap().is_none());
    assert!(requests.lock().unwrap().is_empty(), "nothing is left to send");
}

#[tokio::test]
async fn a_gap_is_sent_again() {
    let mut test = test_upload(1_000);
    test.upload.continue_at(500);
    let gap: &'static str =
        Box::leak(format!("416 Range Not Satisfiable\r\nrange: bytes=0-199|{GAP}").into());
    let ranges = push(&mut test, vec![gap, r#"202 Accepted|{"committed_bytes":1000}"#]).await;
    assert_eq!(ranges, ["bytes 500-999/*", "bytes 200-999/*"]);
    // The server has nothing, so the upload starts again at offset 0.
    let none: &'static str = Box::leak(format!("416 Range Not Satisfiable|{GAP}").into());
    test.upload.continue_at(500);
    let ranges = push(&mut test, vec![none, r#"202 Accepted|{"committed_bytes":1000}"#]).await;
    assert_eq!(ranges, ["bytes 500-999/*", "bytes 0-999/*"]);
}

#[tokio::test]
async fn the_chunk_size_is_halved_permanently_if_a_chunk_is_too_large() {
    let mut test = test_upload(300_000);
    let responses = vec![
        r#"413 Payload Too Large|{"code":"too_large"}"#,
        r#"202 Accepted|{"committed_bytes":131072}"#,
        r#"202 Accepted|{"committed_bytes":262144}"#,
    ];
    let ranges = push(&mut test, responses).await;
    assert_eq!(ranges[1..], ["bytes 0-131071/*", "bytes 131072-262143/*"]);
}

#[tokio::test]
async fn a_divergent_or_full_log_stops_the_upload() {
    for response in [
        r#"409 Conflict|{"code":"log_divergence"}"#,
        r#"507 Insufficient Storage|{"code":"log_quota_exceeded"}"#,
    ] {
        let mut test = test_upload(1_000);
        push(&mut test, vec![response]).await;
        assert!(test.upload.is_stopped(), "{response}");
    }
}

#[tokio::test]
async fn a_damaged_chunk_is_sent_again() {
    const DAMAGED: &str = r#"400 Bad Request|{"code":"bad_request"}"#;
    let mut test = test_upload(1_000);
    let ranges =
        push(&mut test, vec![DAMAGED, DAMAGED, r#"202 Accepted|{"committed_bytes":1000}"#]).await;
    assert_eq!(ranges, ["bytes 0-999/*"; 3]);
    assert!(!test.upload.is_stopped());
    test.upload.continue_at(0);
    push(&mut test, vec![DAMAGED; 6]).await;
    assert!(test.upload.is_stopped(), "the upload stops after repeated rejections");
}

#[tokio::test]
async fn a_rejected_execution_is_returned_to_the_caller() {
    let mut test = test_upload(1_000);
    let (client, _) = scripted(vec![r#"412 Precondition Failed|{"code":"fenced"}"#]).await;
    let result = test.upload.push(&client, test.ids, &test.dir, true).await;
    assert!(matches!(result, Err(UploadError::Rejected(rejection)) if rejection.status == 412));
}

#[tokio::test]
async fn a_response_sets_the_interval_and_may_contain_a_cancel() {
    let mut test = test_upload(1_000);
    let response = concat!(
        "202 Accepted\r\nx-log-interval-ms: 250|",
        r#"{"committed_bytes":10,"cancel":{"reason":"enough","grace_s":5}}"#
    );
    let (client, _) = scripted(vec![response]).await;
    let response_body =
        test.upload.push(&client, test.ids, &test.dir, true).await.unwrap().unwrap();
    assert_eq!(response_body.cancel.unwrap().grace_s, 5);
    assert_eq!(test.upload.settings.interval_ms, 250);
    let (client, requests) = scripted(vec![]).await;
    let early = test.upload.push(&client, test.ids, &test.dir, false).await.unwrap();
    assert!(
        early.is_none() && requests.lock().unwrap().is_empty(),
        "the next chunk is not due yet"
    );
}
