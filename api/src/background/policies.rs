//! Runs the policies over the log.
//!
//! What a reaction causes is guarded by the consumer's position and owner, so a server that was taken for dead does
//! nothing. The position moves in memory when all facts up to there were reacted to ([`abreast`]); it is written after a
//! page, or every second. Whoever starts again from it does nothing a second time, for a reaction does what is wanted
//! now. A fact that cannot be reacted to for a reason of ours is parked and tried again later: whoever it is not about
//! goes on.
use std::{sync::Arc, time::Duration};

use event_log::{ConsumerGuard, Stored, consumer};
use tokio::sync::{RwLock, broadcast::error::RecvError};
use tokio::time::{Instant, MissedTickBehavior};
use ulid::Ulid;

use super::{abreast, failures, parked};
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
const PAGE: u32 = 500;
/// How many facts are reacted to before it is looked at whether the server stops.
const ABREAST: usize = 128;
/// How many batches may wait in memory while others are reacted to.
const BACKLOG: usize = 64;

/// React for as long as the server runs.
pub async fn run(app: App, server: String) {
    // A life of its own: of two servers with one name (a copied data directory) only one holds the lease.
    let owner = format!("{server}/{}", Ulid::new());
    let mut is_first = true;
    failures::expose(&app);
    loop {
        match acquire(&app, &server, &owner, is_first).await {
            Ok(Some(held)) => {
                is_first = false;
                let mut place = Place::of(held);
                if let Err(problem) = follow(&app, &owner, &mut place).await {
                    let detail = &problem.detail;
                    tracing::warn!(reason = %detail, "Policies stop for a moment: {detail}");
                    // What was reacted to need not be come to again. If it is somebody else's, this does nothing.
                    let _ = settle(&app, &mut place).await;
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
        tracing::warn!("The log has another format: servers of that version run its policies");
    }
    Ok(())
}

/// Where the consumer is: at the database, and in memory.
pub struct Place {
    held: consumer::Held,
    seen: u64,
    /// Reactions go side by side with it, or alone.
    pub turn: RwLock<()>,
}

impl Place {
    /// Where it is when it was taken.
    pub fn of(held: consumer::Held) -> Place {
        Place { seen: held.position, held, turn: RwLock::new(()) }
    }

    /// What must hold when a reaction is committed.
    pub fn guard(&self) -> ConsumerGuard {
        ConsumerGuard {
            name: CONSUMER.0.into(),
            version: CONSUMER.1,
            shard: CONSUMER.2,
            expected: self.held.position,
            owner_epoch: self.held.owner_epoch,
        }
    }
}

async fn follow(app: &App, owner: &str, place: &mut Place) -> Result<(), Problem> {
    let (mut tail, mut positions) = (app.engine.log().tail(), app.engine.log().positions());
    // What this server appended comes through memory; what it missed, or others append, is read.
    let mut heard: Option<Arc<[Stored]>> = None;
    let mut lease = Lease { owner, renewed: Instant::now() };
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
            let detail = "the log has another format than this program reads";
            return Err(Problem::new(Code::Unavailable, detail));
        }
        for facts in events.chunks(ABREAST) {
            lease.beside(app, place, abreast::react(app, place, facts)).await?;
            failures::report(app, facts).await;
            place.seen = facts.last().map_or(place.seen, |last| last.position);
            if app.stopping.is_cancelled() {
                break;
            }
        }
        if app.stopping.is_cancelled() {
            return settle(app, place).await;
        }
        if !caught_up || tail.len() > BACKLOG {
            // What is read from the log is not kept in memory until we come to it.
            tail = app.engine.log().tail();
            settle(app, place).await?;
            continue;
        }
        if tried.is_none_or(|at| at.elapsed() >= AGAIN) {
            lease.beside(app, place, parked::try_again(app, place)).await?;
            tried = Some(Instant::now());
        }
        let nothing = || Some(Arc::from([]));
        heard = tokio::select! {
            // The tail first: what it brings need not be read.
            biased;
            () = app.stopping.cancelled() => None,
            _ = beat.tick() => {
                settle(app, place).await?;
                lease.renew_if_due(app, place).await?;
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

/// Write a position that moved in memory only.
async fn settle(app: &App, place: &mut Place) -> Result<(), Problem> {
    if place.seen > place.held.position {
        if !consumer::advance(&app.pool, &place.held, place.seen).await? {
            return Err(lost());
        }
        place.held.position = place.seen;
    }
    Ok(())
}

/// Until when the consumer is ours, as far as we know.
struct Lease<'o> {
    owner: &'o str,
    renewed: Instant,
}

impl Lease<'_> {
    /// Do something that may take its time; the lease does not wait for it.
    async fn beside(
        &mut self,
        app: &App,
        place: &Place,
        doing: impl Future<Output = Result<(), Problem>>,
    ) -> Result<(), Problem> {
        // The end of what is done may cut a renewal short.
        self.renew_if_due(app, place).await?;
        tokio::select! {
            done = doing => done,
            problem = self.keep(app, place) => Err(problem),
        }
    }

    /// Renew it again and again, until it is lost.
    async fn keep(&mut self, app: &App, place: &Place) -> Problem {
        loop {
            tokio::time::sleep_until(self.renewed + RENEWAL).await;
            if let Err(problem) = self.renew_if_due(app, place).await {
                return problem;
            }
            tokio::time::sleep(BEAT).await;
        }
    }

    /// A database that does not answer is asked again for as long as nobody else can have taken the consumer.
    async fn renew_if_due(&mut self, app: &App, place: &Place) -> Result<(), Problem> {
        if self.renewed.elapsed() < RENEWAL {
            return Ok(());
        }
        let (clock, asked) = (app.engine.log().clock(), Instant::now());
        match consumer::acquire(&app.pool, clock, CONSUMER, self.owner, LEASE).await {
            Ok(Some(held)) if held.owner_epoch == place.held.owner_epoch => {
                self.renewed = asked;
                Ok(())
            }
            Ok(Some(_) | None) => Err(lost()),
            Err(_) if self.renewed.elapsed() < LEASE => Ok(()),
            Err(reason) => Err(reason.into()),
        }
    }
}

fn lost() -> Problem {
    Problem::internal("the policies' consumer is somebody else's")
}
