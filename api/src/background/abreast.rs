//! Runs the reactions to events concurrently. Reactions with the same target run in the order of
//! their events.
//!
//! A reaction is a commit, and the log batches concurrent commits. Hundreds of runs therefore
//! advance in the time of one batch.
use std::{collections::HashMap, time::Duration};

use event_log::Stored;
use futures::{FutureExt as _, StreamExt as _, stream};

use super::{
    parked,
    policies::Place,
    reactions::{self, Weight, weigh},
};
use crate::{problem::Problem, state::App};

/// Maximum number of concurrent reactions.
pub const AT_ONCE: usize = 32;
/// Attempts at an event before it becomes a dead letter, and the wait between them.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(500);

/// Runs the reactions to these events. A failure with one target does not delay the others.
pub async fn react(app: &App, place: &Place, facts: &[Stored]) -> Result<(), Problem> {
    let mut threads: Vec<Vec<&Stored>> = vec![];
    let mut known: HashMap<String, usize> = HashMap::new();
    for fact in facts {
        let Some(about) = reactions::about(app, fact).await else { continue };
        match known.get(&about) {
            Some(at) => threads[*at].push(fact),
            None => {
                known.insert(about, threads.len());
                threads.push(vec![fact]);
            }
        }
    }
    let threads: Vec<_> =
        threads.into_iter().map(|thread| follow(app, place, thread).boxed()).collect();
    let done: Vec<_> = stream::iter(threads).buffer_unordered(AT_ONCE).collect().await;
    done.into_iter().collect()
}

async fn follow(app: &App, place: &Place, thread: Vec<&Stored>) -> Result<(), Problem> {
    let mut tries = TRIES;
    for fact in thread {
        if consume(app, place, fact, tries).await? == Came::Parked {
            // A target that failed once will probably fail for its next event, so that one gets a
            // single attempt.
            tries = 1;
        }
    }
    Ok(())
}

/// Result of processing an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    Through,
    Parked,
}

async fn consume(app: &App, place: &Place, fact: &Stored, tries: u32) -> Result<Came, Problem> {
    let mut tried = 1;
    while let Err(problem) = reactions::to(app, place, fact).await {
        match weigh(problem.code) {
            // A temporary failure affects every target, so the caller retries from here later.
            Weight::Later => return Err(problem),
            Weight::Over | Weight::Cannot | Weight::Broken if tried >= tries => {
                parked::park(app, fact.position, &problem).await?;
                return Ok(Came::Parked);
            }
            Weight::Over | Weight::Cannot | Weight::Broken => {
                tokio::time::sleep(PAUSE * tried).await;
                tried += 1;
            }
        }
    }
    Ok(Came::Through)
}
