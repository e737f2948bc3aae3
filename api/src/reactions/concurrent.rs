//! Runs the reactions to events concurrently. Reactions with the same target run in the order of
//! their events.
//!
//! The log batches the commits of concurrent reactions.
use std::{collections::HashMap, time::Duration};

use event_log::StoredEvent;
use futures::{FutureExt as _, StreamExt as _, stream};

use super::{
    commit, dead_letters,
    failure_class::{FailureClass, classify},
    policies::PolicyConsumer,
};
use crate::{problem::Problem, state::App};

/// Maximum number of concurrent reactions.
pub(super) const MAX_CONCURRENT: usize = 32;
/// Maximum number of attempts at an event before it becomes a dead letter. After attempt n the loop
/// waits n times [`RETRY_DELAY`].
const MAX_ATTEMPTS: u32 = 3;
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Runs the reactions to these events. A failure with one target does not delay the others.
pub(super) async fn react(
    app: &App,
    place: &PolicyConsumer,
    events: &[StoredEvent],
) -> Result<(), Problem> {
    let mut threads: Vec<Vec<&StoredEvent>> = vec![];
    let mut known: HashMap<String, usize> = HashMap::new();
    for event in events {
        let Some(about) = commit::target_of(app, event).await else { continue };
        match known.get(&about) {
            Some(at) => threads[*at].push(event),
            None => {
                known.insert(about, threads.len());
                threads.push(vec![event]);
            }
        }
    }
    let threads: Vec<_> =
        threads.into_iter().map(|thread| process_in_order(app, place, thread).boxed()).collect();
    let done: Vec<_> = stream::iter(threads).buffer_unordered(MAX_CONCURRENT).collect().await;
    done.into_iter().collect()
}

async fn process_in_order(
    app: &App,
    place: &PolicyConsumer,
    thread: Vec<&StoredEvent>,
) -> Result<(), Problem> {
    let mut tries = MAX_ATTEMPTS;
    for event in thread {
        if process(app, place, event, tries).await? == ReactionOutcome::DeadLettered {
            // A target that failed once will probably fail for its next event. That event gets a
            // single attempt.
            tries = 1;
        }
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReactionOutcome {
    Processed,
    DeadLettered,
}

async fn process(
    app: &App,
    place: &PolicyConsumer,
    event: &StoredEvent,
    tries: u32,
) -> Result<ReactionOutcome, Problem> {
    let mut tried = 1;
    while let Err(problem) = commit::react_to(app, place, event).await {
        match classify(problem.code) {
            // A temporary failure may affect every target, so the caller retries the events later.
            FailureClass::Transient => return Err(problem),
            FailureClass::Obsolete | FailureClass::Impossible | FailureClass::Internal
                if tried >= tries =>
            {
                dead_letters::store(app, event.position, &problem).await?;
                return Ok(ReactionOutcome::DeadLettered);
            }
            FailureClass::Obsolete | FailureClass::Impossible | FailureClass::Internal => {
                tokio::time::sleep(RETRY_DELAY * tried).await;
                tried += 1;
            }
        }
    }
    Ok(ReactionOutcome::Processed)
}
