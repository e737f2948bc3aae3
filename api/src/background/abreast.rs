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

/// How many threads are followed at a time.
const THREADS: usize = 32;
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
    let done: Vec<_> = stream::iter(threads).buffer_unordered(THREADS).collect().await;
    done.into_iter().collect()
}

async fn follow(app: &App, place: &Place, thread: Vec<&Stored>) -> Result<(), Problem> {
    for fact in thread {
        consume(app, place, fact).await?;
    }
    Ok(())
}

async fn consume(app: &App, place: &Place, fact: &Stored) -> Result<(), Problem> {
    let mut tries = 1;
    while let Err(problem) = reactions::to(app, place, fact).await {
        match weigh(problem.code) {
            // Nothing can be done now, for nobody: from here on again, in a moment.
            Weight::Later => return Err(problem),
            Weight::Over | Weight::Cannot | Weight::Broken if tries >= TRIES => {
                return parked::park(app, fact.position, &problem).await;
            }
            Weight::Over | Weight::Cannot | Weight::Broken => {
                tokio::time::sleep(PAUSE * tries).await;
                tries += 1;
            }
        }
    }
    Ok(())
}
