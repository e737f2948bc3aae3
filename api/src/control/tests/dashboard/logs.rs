//! Pages of a job's log.
use domain::{
    ids::{ExecutionId, JobId, RunId, RunnerId, SessionId, StepId},
    job::{JobClass, JobCommand, JobKind, Origin, Report, Work},
};
use event_log::blob;
use serde_json::json;
use ulid::Ulid;

use super::*;
use crate::server::testing::append_commands;

/// Starts a job. Returns its id, and the execution that writes its log.
async fn started_job(started: &Started, install: domain::ids::InstallId) -> (JobId, ExecutionId) {
    let app = started.app();
    let (job, execution) = (JobId(Ulid::new()), ExecutionId(Ulid::new()));
    let work = Work {
        kind: JobKind::Action,
        class: JobClass::Pure,
        attempts: 3,
        manifest: blob::put(&app.pool, b"manifest").await.unwrap(),
        origin: Origin::Step { install, run: RunId(Ulid::new()), step: StepId(Ulid::new()) },
        deadline_ms: 60_000,
        queue_ttl_ms: 60_000,
    };
    let (runner, session) = (RunnerId(Ulid::new()), SessionId(Ulid::new()));
    let claim = JobCommand::Claim { execution, runner, session, claim_id: "c".into() };
    let report = Report::Started { isolation: None };
    let report = JobCommand::Report { execution, seq: 1, report, signed: None };
    append_commands(app, job, vec![JobCommand::Queue(work), claim, report]).await;
    (job, execution)
}

async fn append(started: &Started, execution: ExecutionId, at: &mut u64, bytes: &[u8]) {
    for chunk in bytes.chunks(crate::logs::CHUNK_MAX_BYTES) {
        *at = started.app().logs.append(execution, *at, chunk.to_vec().into()).await.unwrap();
    }
}

fn record(n: u64, phase: &str, text: &str) -> Vec<u8> {
    let record = json!({"n": n, "t": n * 1000, "s": "o", "p": phase, "m": text});
    [record.to_string().as_bytes(), b"\n"].concat()
}

/// Numbers of the lines of a page.
fn lines(page: &str) -> Vec<u64> {
    page.split("id=\"L")
        .skip(1)
        .map(|line| line.split('"').next().unwrap().parse().unwrap())
        .collect()
}

#[tokio::test]
async fn a_log_of_64_mib_is_read_by_line_and_searched() {
    // given a log of the maximum size, with colors, hostile lines, phases, and bytes that are no records
    let (started, _owner, acme) = with_install().await;
    let (job, execution) = started_job(&started, acme.id).await;
    let (mut at, mut n, mut buffer) = (0, 0, Vec::new());
    while at + (buffer.len() as u64) < (48 << 20) {
        n += 1;
        let text = match n {
            150_000 => "\u{1b}[31mred from here".to_owned(),
            150_001 => "<script>alert(1)</script> still red".to_owned(),
            200_000 => "the only Needle".to_owned(),
            n => format!("line {n} {}", "padding ".repeat(12)),
        };
        buffer.extend(record(n, if n < 150_000 { "plan" } else { "apply" }, &text));
        if n == 1_000 {
            buffer.extend(b"no record\n");
            buffer.extend(record(7, "plan", "a repeated number"));
        }
        if buffer.len() > (1 << 20) {
            append(&started, execution, &mut at, &buffer).await;
            buffer.clear();
        }
    }
    // A line of 15 MiB without an end is no record, and must not stay in memory.
    buffer.extend(vec![b'x'; 15 << 20]);
    buffer.extend(b"\n");
    n += 1;
    buffer.extend(record(n, "apply", "the end"));
    append(&started, execution, &mut at, &buffer).await;
    assert!(at > (63 << 20));

    // then a page has the newest lines, and the phases of the whole log
    let browser = Browser::logged_in(&started).await;
    let get = async |query: &str| {
        let response = browser.get(&format!("/ui/jobs/{job}{query}")).await;
        assert_eq!(response.status(), StatusCode::OK);
        response.text().await.unwrap()
    };
    let began = std::time::Instant::now();
    let newest = get("").await;
    eprintln!("{at} bytes, {n} lines: first page after {:?}", began.elapsed());
    let began = std::time::Instant::now();
    assert_eq!(lines(&get("").await).last(), Some(&n));
    eprintln!("second page after {:?}", began.elapsed());
    assert_eq!(lines(&newest).last(), Some(&n));
    assert!(lines(&newest).len() <= 1_000 && newest.contains("149999 lines"), "{newest:.3000}");

    // and each line has an address, with the style that an earlier line selected
    let page = get("?attempt=1&line=150001").await;
    assert_eq!(lines(&page).first(), Some(&149_981));
    assert!(page.contains("<span class=\"c1\">&lt;script&gt;alert(1)&lt;/script&gt; still red"));
    let page = get("?attempt=1&after=150500").await;
    assert_eq!(lines(&page), (150_501..=151_500).collect::<Vec<_>>());
    assert!(page.contains("<span class=\"c1\">line 150501"), "{page:.3000}");
    let page = get("?attempt=1&after=0").await;
    assert_eq!(lines(&page), (1..=1_000).collect::<Vec<_>>());
    assert!(!page.contains("a repeated number") && !page.contains("no record"));

    // and a search reads a part of the log, and goes on
    let (mut query, mut requests) = ("?attempt=1&q=NEEDLE".to_owned(), 1);
    let page = loop {
        let page = get(&query).await;
        if page.contains("the only <mark>Needle</mark>") {
            break page;
        }
        let (before, _) = page.split_once("\">Search the next lines").unwrap();
        let (_, href) = before.rsplit_once("href=\"").unwrap();
        query = href
            .split_once('?')
            .map(|(_, query)| format!("?{}", query.replace("&amp;", "&")))
            .unwrap();
        requests += 1;
    };
    assert!((2..=5).contains(&requests) && page.contains("1 line"), "{requests}");

    // and the download has the text of the job
    let text = browser.get(&format!("/ui/jobs/{job}/attempts/1/log?format=text")).await;
    assert!(text.headers()["content-disposition"].to_str().unwrap().ends_with("-1.log\""));
    let text = text.text().await.unwrap();
    assert!(text.starts_with("line 1 padding") && text.ends_with("\nthe end\n"));
    started.server.stop().await;
}

#[tokio::test]
async fn a_log_that_is_stored_again_or_erased_gets_another_index() {
    let (started, _owner, acme) = with_install().await;
    let (job, execution) = started_job(&started, acme.id).await;
    let browser = Browser::logged_in(&started).await;
    let page = async |query: &str| {
        browser.get(&format!("/ui/jobs/{job}{query}")).await.text().await.unwrap()
    };
    let mut at = 0;
    append(&started, execution, &mut at, &record(1, "first", "first text")).await;
    // An incomplete record is no line yet.
    append(&started, execution, &mut at, &record(2, "first", "second text")[..20]).await;
    assert_eq!(lines(&page("").await), [1]);
    append(&started, execution, &mut at, &record(2, "first", "second text")[20..]).await;
    assert_eq!(lines(&page("").await), [1, 2]);
    // An open page asks for the lines after those that it has, and still follows.
    let since = page("?since=1").await;
    assert_eq!(lines(&since), [2]);
    assert!(since.contains(&format!("data-live=\"{job}.1\"")), "{since}");

    started.app().logs.rewind(execution).await.unwrap();
    let mut at = 0;
    let other: Vec<u8> = (1..=9).flat_map(|n| record(n, "other", "other text")).collect();
    append(&started, execution, &mut at, &other).await;
    let shown = page("").await;
    assert!(lines(&shown).len() == 9 && !shown.contains("first text"), "{shown}");
    started.app().logs.erase(&[execution.to_string()]).await.unwrap();
    assert!(page("").await.contains("The log has no output yet"));
    started.server.stop().await;
}
