//! Runs the policies over the log: each fact is reacted to once.
//!
//! The consumer row moves in the commit of what a reaction caused, guarded by its position and its
//! owner, so a server that was killed, or taken for dead, cannot react a second time. Facts that
//! cause nothing move it in memory; that is written with the next reaction, after a page, or every
//! second. A fact that cannot be reacted to for a reason of ours is parked and tried again later:
//! whoever it is not about goes on.
use std::{sync::Arc, time::Duration};

use event_log::{ConsumerMove, Stored, consumer};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, MissedTickBehavior};
use ulid::Ulid;

use super::{
    parked,
    reactions::{self, Weight, weigh},
};
use crate::{
    problem::{Code, Problem},
    state::App,
};

/// Whose consumer position it is.
pub const CONSUMER: (&str, i32, i32) = ("policies", 1, 0);
/// How long a silent owner keeps the consumer.
const LEASE: Duration = Duration::from_secs(15);
/// How often the lease is renewed.
const RENEWAL: Duration = Duration::from_secs(5);
/// How often a position that moved in memory is written.
const BEAT: Duration = Duration::from_secs(1);
/// How often parked facts are tried again.
const AGAIN: Duration = Duration::from_secs(60);
/// How often a fact is tried before it is parked, and how long is waited in between.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(500);
const PAGE: u32 = 500;
/// How many batches may wait in memory while others are reacted to.
const BACKLOG: usize = 64;

/// React for as long as the server runs.
pub async fn run(app: App, server: String) {
    // A life of its own: of two servers with one name (a copied data directory) only one holds the lease.
    let owner = format!("{server}/{}", Ulid::new());
    let mut is_first = true;
    loop {
        match acquire(&app, &server, &owner, is_first).await {
            Ok(Some(held)) => {
                is_first = false;
                if let Err(problem) = follow(&app, &owner, held).await {
                    let detail = &problem.detail;
                    tracing::warn!(reason = %detail, "Policies stop for a moment: {detail}");
                }
            }
            Ok(None) => is_first = false,
            Err(error) => {
                tracing::warn!(reason = %error, "Policies wait for the database: {error}")
            }
        }
        tokio::select! {
            () = app.stopping.cancelled() => return,
            () = tokio::time::sleep(BEAT) => {}
        }
    }
}

/// Take the consumer. What an earlier life of this server left is free at once: the data directory is
/// locked, so that life is over.
async fn acquire(
    app: &App,
    server: &str,
    owner: &str,
    is_first: bool,
) -> Result<Option<consumer::Held>, sqlx::Error> {
    let clock = app.engine.log().clock();
    // What reacts must be able to write: the consumer is for a server of the version that migrated.
    if app.engine.log().is_ours().await.is_err() {
        release(app, owner).await?;
        return Ok(None);
    }
    if is_first {
        let free = "update log_consumer set lease_until = $4 \
                    where name = $1 and version = $2 and shard = $3 and starts_with(owner, $5)";
        sqlx::query(free)
            .bind(CONSUMER.0)
            .bind(CONSUMER.1)
            .bind(CONSUMER.2)
            .bind(clock.now())
            .bind(format!("{server}/"))
            .execute(&app.pool)
            .await?;
    }
    consumer::acquire(&app.pool, clock, CONSUMER, owner, LEASE).await
}

/// Let whoever can react take the consumer at once.
async fn release(app: &App, owner: &str) -> Result<(), sqlx::Error> {
    let free = "update log_consumer set lease_until = $4 \
                where name = $1 and version = $2 and shard = $3 and owner = $5 and lease_until > $4";
    let freed = sqlx::query(free)
        .bind(CONSUMER.0)
        .bind(CONSUMER.1)
        .bind(CONSUMER.2)
        .bind(app.engine.log().clock().now())
        .bind(owner)
        .execute(&app.pool)
        .await?;
    if freed.rows_affected() > 0 {
        tracing::warn!(
            "The log has another layout than this program: its policies are for others now"
        );
    }
    Ok(())
}

/// Where the consumer is: at the database, and in memory.
pub struct Place {
    held: consumer::Held,
    seen: u64,
    renewed: Instant,
}

impl Place {
    /// Where it is when it was taken.
    pub fn of(held: consumer::Held) -> Place {
        Place { seen: held.position, held, renewed: Instant::now() }
    }

    /// The consumer's step to a position, in the commit that a reaction causes. Without one it is a
    /// guard only.
    pub fn step(&self, to: Option<u64>) -> ConsumerMove {
        ConsumerMove {
            name: CONSUMER.0.into(),
            version: CONSUMER.1,
            shard: CONSUMER.2,
            expected: self.held.position,
            owner_epoch: self.held.owner_epoch,
            to: to.unwrap_or(self.held.position),
        }
    }

    /// A commit has moved it.
    pub fn moved(&mut self, to: u64) {
        self.held.position = to;
    }
}

async fn follow(app: &App, owner: &str, held: consumer::Held) -> Result<(), Problem> {
    let (mut tail, mut positions) = (app.engine.log().tail(), app.engine.log().positions());
    // What this server appended comes through memory; what it missed, or others append, is read.
    let mut heard: Option<Arc<[Stored]>> = None;
    let mut place = Place::of(held);
    let mut beat = tokio::time::interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut tried: Option<Instant> = None;
    loop {
        let (events, caught_up) = match heard.take() {
            Some(batch) => (batch, true),
            None => {
                let page = app.engine.log().read(place.seen, PAGE).await?;
                let caught_up = page.len() < PAGE as usize;
                (page.into(), caught_up)
            }
        };
        if app.engine.log().is_outdated() {
            let detail = "the log has another layout than this program";
            return Err(Problem::new(Code::Unavailable, detail));
        }
        for event in events.iter() {
            consume(app, &mut place, event).await?;
            if place.renewed.elapsed() >= RENEWAL {
                settle(app, owner, &mut place).await?;
            }
            if app.stopping.is_cancelled() {
                break;
            }
        }
        if app.stopping.is_cancelled() {
            return settle(app, owner, &mut place).await;
        }
        if !caught_up || tail.len() > BACKLOG {
            // What is read from the log is not kept in memory until we come to it.
            tail = app.engine.log().tail();
            settle(app, owner, &mut place).await?;
            continue;
        }
        if tried.is_none_or(|at| at.elapsed() >= AGAIN) {
            parked::try_again(app, &mut place).await?;
            tried = Some(Instant::now());
        }
        let nothing = || Some(Arc::from([]));
        heard = tokio::select! {
            // The tail first: what it brings need not be read.
            biased;
            () = app.stopping.cancelled() => None,
            _ = beat.tick() => {
                settle(app, owner, &mut place).await?;
                None
            }
            batch = tail.recv() => match batch {
                Ok(batch) if batch.first().is_some_and(|first| first.position == place.seen + 1) => {
                    Some(batch)
                }
                Ok(batch) if batch.last().is_none_or(|last| last.position <= place.seen) => nothing(),
                Ok(_) | Err(RecvError::Lagged(_)) => None,
                Err(RecvError::Closed) => return Ok(()),
            },
            changed = positions.changed() => match changed {
                Ok(()) if *positions.borrow_and_update() <= place.seen => nothing(),
                Ok(()) => None,
                Err(_) => return Ok(()),
            },
        };
    }
}

/// Write a position that moved in memory only, and renew the lease in time.
async fn settle(app: &App, owner: &str, place: &mut Place) -> Result<(), Problem> {
    let lost = || Problem::internal("the policies' consumer is somebody else's");
    if place.seen > place.held.position {
        if !consumer::advance(&app.pool, &place.held, place.seen).await? {
            return Err(lost());
        }
        place.held.position = place.seen;
    }
    if place.renewed.elapsed() < RENEWAL {
        return Ok(());
    }
    let clock = app.engine.log().clock();
    match consumer::acquire(&app.pool, clock, CONSUMER, owner, LEASE).await? {
        Some(held) if held.owner_epoch == place.held.owner_epoch => {
            place.renewed = Instant::now();
            Ok(())
        }
        Some(_) | None => Err(lost()),
    }
}

async fn consume(app: &App, place: &mut Place, event: &Stored) -> Result<(), Problem> {
    let mut tries = 1;
    while let Err(problem) = reactions::to(app, place, event, true).await {
        match weigh(problem.code) {
            // Nothing can be done now, for nobody: from here on again, in a moment.
            Weight::Later => return Err(problem),
            Weight::Over | Weight::Cannot | Weight::Broken if tries >= TRIES => {
                parked::park(app, event.position, &problem).await?;
                break;
            }
            Weight::Over | Weight::Cannot | Weight::Broken => {
                tokio::time::sleep(PAUSE * tries).await;
                tries += 1;
            }
        }
    }
    place.seen = event.position;
    Ok(())
}
