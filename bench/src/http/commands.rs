//! Callers that create enrolment tokens one after the other. Each token is one event in a new
//! stream. The append updates the hash chain, the tree and an inline projection.
use std::time::{Duration, Instant};

use measure::{Run, pgbench::count};
use ulid::Ulid;

use crate::{api_client::ApiClient, database::Database};

const PATH: &str = "/v1/runners/enrolment-tokens";
/// Inline projection with one row per command.
const VIEW: &str = "stead.projection_enrolments";

/// Runs this number of callers for a period. If `keyed` is set, each command has an idempotency
/// key.
pub async fn run(
    database: &Database,
    client: &ApiClient,
    callers: usize,
    keyed: bool,
    period: Duration,
) -> Run {
    let before = count(database.root(), VIEW).await;
    let start = Instant::now();
    let callers = (0..callers).map(|_| tokio::spawn(caller(client.clone(), keyed, start, period)));
    let calls = futures::future::join_all(callers).await;
    let calls: Vec<_> = calls.into_iter().flat_map(Result::unwrap).collect();
    let whole = start.elapsed();
    let made = count(database.root(), VIEW).await - before;
    assert_eq!(made, calls.len() as i64, "each acknowledged command must have one row");
    Run { events: calls.len(), whole, calls }
}

async fn caller(client: ApiClient, keyed: bool, start: Instant, period: Duration) -> Vec<Duration> {
    let (mut wire, mut calls) = (client.wire(), Vec::new());
    while start.elapsed() < period {
        let key = keyed.then(|| Ulid::new().to_string());
        let request = client.post(PATH, key.as_deref());
        let began = Instant::now();
        wire.send(request).await.unwrap().ok();
        calls.push(began.elapsed());
    }
    calls
}
