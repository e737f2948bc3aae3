//! Facts that are reacted to abreast: about different things at once, about one thing in their order.
//!
//! A reaction is a commit, and commits of the same moment are one batch of the log: abreast, hundreds of runs go on in
//! the time that one takes.
use std::{collections::HashMap, time::Duration};

use event_log::Stored;
use futures::{FutureExt as _, StreamExt as _, stream};

use super::{
    parked,
    policies::Place,
    reactions::{self, Weight, weigh},
};
use crate::{problem::Problem, state::App};

/// How many reactions are under way at a time.
pub const AT_ONCE: usize = 32;
/// How often a fact is tried before it is parked, and how long is waited in between.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(500);

/// React to these facts. If one cannot be reacted to now, those about other things are done all the same.
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
            // What is wrong with the thing is wrong for its next fact, too: others have waited for it once.
            tries = 1;
        }
    }
    Ok(())
}

/// What became of a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    Through,
    Parked,
}

async fn consume(app: &App, place: &Place, fact: &Stored, tries: u32) -> Result<Came, Problem> {
    let mut tried = 1;
    while let Err(problem) = reactions::to(app, place, fact).await {
        match weigh(problem.code) {
            // Nothing can be done now, for nobody: from here on again, in a moment.
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
