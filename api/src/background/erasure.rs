//! What follows from `subject.shredded`: the key is deleted at once, and after a moment every copy that the server can
//! reach. Each step can be done again, by any server: who is killed leaves the rest to the next.
use std::time::Duration;

use chrono::TimeDelta;
use domain::{
    actor::Actor,
    subject::{Subject, SubjectCommand, SubjectId},
};
use event_log::{Meta, consumer, sealed::shred};
use futures::FutureExt as _;
use tokio::sync::broadcast::error::RecvError;

use crate::{erasure, execute::Call, problem::Problem, state::App};

/// How often to look for copies that are left.
const TICK: Duration = Duration::from_secs(1);
/// How long after the decision copies are erased. Every server of this database has heard of it by then (each looks four
/// times a second) and what it was at is done, so that nobody writes a copy afterwards.
const SETTLED: TimeDelta = TimeDelta::seconds(5);
/// How long after a failure it is tried again.
const RETRY: Duration = Duration::from_secs(15);
/// One server at a time: what it does is done for all.
const CONSUMER: (&str, i32, i32) = ("erasure", 1, 0);
/// How long after its last step somebody is believed to be at it.
const LEASE: Duration = Duration::from_secs(60);

/// Delete keys and copies until the server stops.
pub async fn run(app: App) {
    let mut tail = app.log().tail();
    // What was decided while no server ran, or by one that was killed.
    let mut look_back = true;
    let mut ticks = tokio::time::interval(TICK);
    loop {
        if look_back {
            look_back = again(&app, catch_up(&app).await).await;
        }
        tokio::select! {
            () = app.stopping.cancelled() => return,
            batch = tail.recv() => match batch {
                Ok(batch) => look_back |= batch.iter().any(|event| event.event_type == "subject.shredded"),
                Err(RecvError::Lagged(_)) => look_back = true,
                Err(RecvError::Closed) => return,
            },
            _ = ticks.tick() => {
                again(&app, copies(&app).await).await;
            }
        }
    }
}

/// Whether it has to be tried again; after a while.
async fn again(app: &App, done: Result<(), Problem>) -> bool {
    let Err(problem) = done else { return false };
    let detail = &problem.detail;
    tracing::warn!(reason = %detail, "What was shredded is not erased everywhere yet, trying again: {detail}");
    tokio::select! {
        () = app.stopping.cancelled() => {}
        () = tokio::time::sleep(RETRY) => {}
    }
    true
}

/// Delete the keys of who was shredded.
async fn catch_up(app: &App) -> Result<(), Problem> {
    for subject in shred::undone(&app.pool).await? {
        app.log().ring().forget(&subject);
        shred::delete_key(&app.pool, &subject, app.now()).await?;
    }
    Ok(())
}

/// Erase the copies of who was shredded a moment ago, all of them at once.
async fn copies(app: &App) -> Result<(), Problem> {
    let of = shred::with_copies(&app.pool, app.now() - SETTLED).await?;
    if of.is_empty() {
        return Ok(());
    }
    let clock = app.log().clock();
    let held = consumer::acquire(&app.pool, clock, CONSUMER, &app.config.server, LEASE).await?;
    if held.is_none() {
        return Ok(());
    }
    let subjects: Vec<SubjectId> = of.iter().filter_map(|subject| subject.parse().ok()).collect();
    erasure::erase(app, &subjects).await?;
    for subject in subjects {
        let call = Call::of(Meta::new(Actor::System, ulid::Ulid::new().to_string()));
        let told = app.engine.transact(&call, move |unit| {
            async move {
                unit.tell::<Subject>(subject, SubjectCommand::RecordErased).await.map(drop)
            }
            .boxed()
        });
        told.await?;
        shred::erased(&app.pool, &subject.to_string(), app.now()).await?;
        tracing::info!(subject = %subject, "No copy of what was {subject}'s is left at the server");
    }
    Ok(())
}
