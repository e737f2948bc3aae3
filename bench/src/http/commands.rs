//! Callers who each ask for one enrolment token after the other: one event in a stream of its own, chained, in the
//! tree, and in a view that is written with it.
use std::time::{Duration, Instant};

use event_log::testing::measure::{Run, pgbench::count};
use ulid::Ulid;

use crate::{database::Database, people::People};

const PATH: &str = "/v1/runners/enrolment-tokens";
/// Where each of them is written in the commit of its event.
const VIEW: &str = "stead.projection_enrolments";

/// So many callers for a while; `keyed`: each command can be repeated.
pub async fn run(
    database: &Database,
    people: &People,
    callers: usize,
    keyed: bool,
    period: Duration,
) -> Run {
    let before = count(database.root(), VIEW).await;
    let start = Instant::now();
    let callers = (0..callers).map(|_| tokio::spawn(caller(people.clone(), keyed, start, period)));
    let calls = futures::future::join_all(callers).await;
    let calls: Vec<_> = calls.into_iter().flat_map(Result::unwrap).collect();
    let whole = start.elapsed();
    let made = count(database.root(), VIEW).await - before;
    assert_eq!(made, calls.len() as i64, "each command that was acknowledged is there once");
    Run { events: calls.len(), whole, calls }
}

async fn caller(people: People, keyed: bool, start: Instant, period: Duration) -> Vec<Duration> {
    let (mut wire, mut calls) = (people.wire(), Vec::new());
    while start.elapsed() < period {
        let key = keyed.then(|| Ulid::new().to_string());
        let ask = people.post(PATH, key.as_deref());
        let began = Instant::now();
        wire.send(ask).await.unwrap().ok();
        calls.push(began.elapsed());
    }
    calls
}
