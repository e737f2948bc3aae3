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
async fn push(spool: &mut TestUpload, answers: Vec<&'static str>) -> Vec<String> {
    let times = answers.len();
    let (client, asked) = scripted(answers).await;
    for _ in 0..times {
        spool.upload.push(&client, spool.ids, &spool.dir, true).await.unwrap();
    }
    let asked = asked.lock().unwrap();
    let range = |text: &String| {
        let line = text.lines().find_map(|line| line.strip_prefix("content-range: "));
        line.unwrap_or_default().to_owned()
    };
    asked.iter().map(range).collect()
}

const GAP: &str = r#"{"code":"log_gap"}"#;

#[tokio::test]
async fn the_response_sets_the_offset() {
    let mut spool = test_upload(300_000);
    let answers = vec![
        r#"202 Accepted|{"committed_bytes":100000}"#,
        r#"202 Accepted|{"committed_bytes":300000}"#,
    ];
    let ranges = push(&mut spool, answers).await;
    assert_eq!(ranges, ["bytes 0-262143/*", "bytes 100000-299999/*"]);
    assert_eq!(spool.upload.committed_bytes(), 300_000);
    let (client, asked) = scripted(vec![]).await;
    assert!(spool.upload.push(&client, spool.ids, &spool.dir, true).await.unwrap().is_none());
    assert!(asked.lock().unwrap().is_empty(), "nothing is left to send");
}

#[tokio::test]
async fn a_gap_is_sent_again() {
    let mut spool = test_upload(1_000);
    spool.upload.continue_at(500);
    let gap: &'static str =
        Box::leak(format!("416 Range Not Satisfiable\r\nrange: bytes=0-199|{GAP}").into());
    let ranges = push(&mut spool, vec![gap, r#"202 Accepted|{"committed_bytes":1000}"#]).await;
    assert_eq!(ranges, ["bytes 500-999/*", "bytes 200-999/*"]);
    // The server has nothing, so the upload starts again at offset 0.
    let none: &'static str = Box::leak(format!("416 Range Not Satisfiable|{GAP}").into());
    spool.upload.continue_at(500);
    let ranges = push(&mut spool, vec![none, r#"202 Accepted|{"committed_bytes":1000}"#]).await;
    assert_eq!(ranges, ["bytes 500-999/*", "bytes 0-999/*"]);
}

#[tokio::test]
async fn the_chunk_size_is_halved_permanently_if_a_chunk_is_too_large() {
    let mut spool = test_upload(300_000);
    let answers = vec![
        r#"413 Payload Too Large|{"code":"too_large"}"#,
        r#"202 Accepted|{"committed_bytes":131072}"#,
        r#"202 Accepted|{"committed_bytes":262144}"#,
    ];
    let ranges = push(&mut spool, answers).await;
    assert_eq!(ranges[1..], ["bytes 0-131071/*", "bytes 131072-262143/*"]);
}

#[tokio::test]
async fn a_divergent_or_full_log_stops_the_upload() {
    for answer in [
        r#"409 Conflict|{"code":"log_divergence"}"#,
        r#"507 Insufficient Storage|{"code":"log_quota_exceeded"}"#,
    ] {
        let mut spool = test_upload(1_000);
        push(&mut spool, vec![answer]).await;
        assert!(spool.upload.is_stopped(), "{answer}");
    }
}

#[tokio::test]
async fn a_damaged_chunk_is_sent_again() {
    const HARMED: &str = r#"400 Bad Request|{"code":"bad_request"}"#;
    let mut spool = test_upload(1_000);
    let ranges =
        push(&mut spool, vec![HARMED, HARMED, r#"202 Accepted|{"committed_bytes":1000}"#]).await;
    assert_eq!(ranges, ["bytes 0-999/*"; 3]);
    assert!(!spool.upload.is_stopped());
    spool.upload.continue_at(0);
    push(&mut spool, vec![HARMED; 6]).await;
    assert!(spool.upload.is_stopped(), "the upload stops after repeated rejections");
}

#[tokio::test]
async fn a_rejected_execution_is_returned_to_the_caller() {
    let mut spool = test_upload(1_000);
    let (client, _) = scripted(vec![r#"412 Precondition Failed|{"code":"fenced"}"#]).await;
    let refused = spool.upload.push(&client, spool.ids, &spool.dir, true).await;
    assert!(matches!(refused, Err(UploadError::Rejected(refused)) if refused.status == 412));
}

#[tokio::test]
async fn a_response_sets_the_interval_and_may_contain_a_cancel() {
    let mut spool = test_upload(1_000);
    let answer = concat!(
        "202 Accepted\r\nx-log-interval-ms: 250|",
        r#"{"committed_bytes":10,"cancel":{"reason":"enough","grace_s":5}}"#
    );
    let (client, _) = scripted(vec![answer]).await;
    let said = spool.upload.push(&client, spool.ids, &spool.dir, true).await.unwrap().unwrap();
    assert_eq!(said.cancel.unwrap().grace_s, 5);
    assert_eq!(spool.upload.settings.interval_ms, 250);
    let (client, asked) = scripted(vec![]).await;
    let early = spool.upload.push(&client, spool.ids, &spool.dir, false).await.unwrap();
    assert!(early.is_none() && asked.lock().unwrap().is_empty(), "the next chunk is not due yet");
}
