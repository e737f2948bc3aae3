#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may fail the test")]
#[path = "../../tests/support/mod.rs"]
mod support;

use support::{Noise, database, open};

use super::{Making, Taken};
use crate::{Projections, catalogue::view, swap::swap, verify};

#[tokio::test]
async fn two_rebuilds_of_one_view_share_the_work_and_not_what_they_remember() {
    let database = database().await;
    let log = open(&database).await;
    Projections::start(&log).await.unwrap();
    Noise::new(20).write(&log, 120).await;
    let making = || {
        let mut making = Making::of(view("jobs").unwrap());
        making.by = 7;
        making
    };
    let mut both = [making(), making()];
    for one in &mut both {
        one.begin(&database.pool, 3).await.unwrap();
    }
    // In turns, so that each misses every second page.
    for turn in 0.. {
        let mut tx = database.pool.begin().await.unwrap();
        let Some(Taken { before, at }) = both[turn % 2].page(&mut tx).await.unwrap() else {
            panic!("the shadow is gone")
        };
        tx.commit().await.unwrap();
        if before == at {
            break;
        }
    }
    let [one, two] = &mut both;
    assert_eq!(swap(&database.pool, one).await.unwrap(), log.position());
    let verified = verify(&database.pool, "jobs", |_| {}).await.unwrap();
    assert_eq!(verified.differences, []);
    // Whoever comes last finds it done.
    assert_eq!(swap(&database.pool, two).await.unwrap(), log.position());
    assert_eq!(verify(&database.pool, "jobs", |_| {}).await.unwrap().differences, []);
}
