//! Runs the policies over the log.
//!
//! Each commit of a reaction is guarded by the consumer's position and owner epoch, so a server
//! that lost its lease commits nothing. The position advances in memory once every event up to it
//! was processed or stored as a dead letter. The server writes the position to the database after
//! each page, and otherwise every second.
//!
//! A restart from an older position repeats no effect, because reactions evaluate the current
//! state. An event that fails repeatedly becomes a dead letter, and the policies continue with the
//! other events.
use std::{sync::Arc, time::Duration};

use event_log::{ConsumerGuard, StoredEvent, consumer};
use tokio::sync::{RwLock, broadcast::error::RecvError};
use tokio::time::{Instant, MissedTickBehavior};

use super::{concurrent, dead_letters, failures};
use crate::{
    ids,
    problem::{Code, Problem},
    state::App,
};

/// Name, version and shard of the policies' consumer.
pub const CONSUMER: (&str, i32, i32) = ("policies", 1, 0);
/// Duration of the consumer lease.
const LEASE: Duration = Duration::from_secs(15);
/// Interval between lease renewals.
const RENEWAL: Duration = Duration::from_secs(5);
/// Interval at which a position that advanced in memory is written.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between retries of dead letters.
const DEAD_LETTER_RETRY: Duration = Duration::from_secs(60);
const PAGE: u32 = 500;
/// Number of events processed between two checks for shutdown.
const CHUNK: usize = 128;
/// Number of batches that may wait in memory before the loop reads from the log instead.
const BACKLOG: usize = 64;

/// Runs the policies until the server stops.
pub(crate) async fn run(app: App, server: String) {
    // Unique per process: if two servers share a name (a copied data directory), only one holds the
    // lease.
    let owner = format!("{server}/{}", ids::new_ulid());
    let mut is_first = true;
    failures::expose(&app);
    loop {
        match acquire(&app, &server, &owner, is_first).await {
            Ok(Some(held)) => {
                is_first = false;
                let mut place = PolicyConsumer::of(held);
                if let Err(problem) = process_log(&app, &owner, &mut place).await {
                    let detail = &problem.detail;
                    tracing::warn!(error = %detail, "Policies stopped; the server restarts them");
                    // Avoids repeating the processed events. Has no effect if another server holds
                    // the lease.
                    let _ = write_position(&app, &mut place).await;
                }
            }
            Ok(None) => is_first = false,
            Err(error) => {
                tracing::warn!(error = %error, "Cannot acquire the lease of the policies, trying again")
            }
        }
        tokio::select! {
            () = app.stopping.cancelled() => return,
            () = tokio::time::sleep(WRITE_INTERVAL) => {}
        }
    }
}

/// Acquires the consumer lease. At the first call, releases a lease of an earlier process of this
/// server. That process has ended, because the data directory is locked.
async fn acquire(
    app: &App,
    server: &str,
    owner: &str,
    is_first: bool,
) -> Result<Option<consumer::ConsumerLease>, sqlx::Error> {
    let clock = app.engine.log().clock();
    // Reactions must be able to write, so only a server whose version matches the migrated layout
    // takes the consumer.
    if app.engine.log().check_layout().await.is_err() {
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

/// Releases the lease so that another server can take it immediately.
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
            "Cannot run the policies: the log has another format; servers of the matching version run them"
        );
    }
    Ok(())
}

/// Position of the consumer in the database and in memory.
pub(crate) struct PolicyConsumer {
    lease: consumer::ConsumerLease,
    position: u64,
    /// Held shared by concurrent reactions, and exclusively by a reaction that must run alone.
    pub reaction_lock: RwLock<()>,
}

impl PolicyConsumer {
    /// Creates the consumer at the position of its lease.
    pub(crate) fn of(lease: consumer::ConsumerLease) -> PolicyConsumer {
        PolicyConsumer { position: lease.position, lease, reaction_lock: RwLock::new(()) }
    }

    /// Guard that every commit of a reaction must satisfy.
    pub(crate) fn guard(&self) -> ConsumerGuard {
        ConsumerGuard {
            name: CONSUMER.0.into(),
            version: CONSUMER.1,
            shard: CONSUMER.2,
            expected: self.lease.position,
            owner_epoch: self.lease.owner_epoch,
        }
    }
}

async fn process_log(app: &App, owner: &str, place: &mut PolicyConsumer) -> Result<(), Problem> {
    let (mut tail, mut positions) = (app.engine.log().tail(), app.engine.log().positions());
    // Events that this server appended arrive in memory. Missed events and events of other servers
    // are read from the log.
    let mut received: Option<Arc<[StoredEvent]>> = None;
    let mut lease = Lease { owner, renewed: Instant::now() };
    let mut beat = tokio::time::interval(WRITE_INTERVAL);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut tried: Option<Instant> = None;
    loop {
        let (events, caught_up) = match received.take() {
            Some(batch) => (batch, true),
            None => {
                let page = app.engine.log().read(place.position, PAGE).await?;
                let caught_up = page.len() < PAGE as usize;
                (page.into(), caught_up)
            }
        };
        if app.engine.log().is_outdated() {
            let detail = "policies stopped: this program cannot read the format of the log; upgrade the server";
            return Err(Problem::new(Code::Unavailable, detail));
        }
        for domain_events in events.chunks(CHUNK) {
            lease.beside(app, place, concurrent::react(app, place, domain_events)).await?;
            failures::report(app, domain_events).await;
            place.position = domain_events.last().map_or(place.position, |last| last.position);
            if app.stopping.is_cancelled() {
                break;
            }
        }
        if app.stopping.is_cancelled() {
            return write_position(app, place).await;
        }
        if !caught_up || tail.len() > BACKLOG {
            // Drops the batches in memory, because the next iteration reads their events from the
            // log.
            tail = app.engine.log().tail();
            write_position(app, place).await?;
            continue;
        }
        if tried.is_none_or(|at| at.elapsed() >= DEAD_LETTER_RETRY) {
            lease.beside(app, place, dead_letters::retry_all(app, place)).await?;
            tried = Some(Instant::now());
        }
        let nothing = || Some(Arc::from([]));
        received = tokio::select! {
            // The tail comes first, because events that it delivers need not be read from the log.
            biased;
            () = app.stopping.cancelled() => None,
            _ = beat.tick() => {
                write_position(app, place).await?;
                lease.renew_if_due(app, place).await?;
                None
            }
            batch = tail.recv() => match batch {
                Ok(batch) if batch.first().is_some_and(|first| first.position == place.position + 1) => {
                    Some(batch)
                }
                Ok(batch) if batch.last().is_none_or(|last| last.position <= place.position) => nothing(),
                Ok(_) | Err(RecvError::Lagged(_)) => None,
                Err(RecvError::Closed) => return Ok(()),
            },
            changed = positions.changed() => match changed {
                Ok(()) if *positions.borrow_and_update() <= place.position => nothing(),
                Ok(()) => None,
                Err(_) => return Ok(()),
            },
        };
    }
}

/// Writes a position that advanced only in memory.
async fn write_position(app: &App, place: &mut PolicyConsumer) -> Result<(), Problem> {
    if place.position > place.lease.position {
        if !consumer::advance(&app.pool, &place.lease, place.position).await? {
            return Err(lease_lost());
        }
        place.lease.position = place.position;
    }
    Ok(())
}

/// Lease on the consumer, with its last renewal.
struct Lease<'o> {
    owner: &'o str,
    renewed: Instant,
}

impl Lease<'_> {
    /// Runs a future of any duration and renews the lease meanwhile.
    async fn beside(
        &mut self,
        app: &App,
        place: &PolicyConsumer,
        doing: impl Future<Output = Result<(), Problem>>,
    ) -> Result<(), Problem> {
        // The future may end while a renewal is in flight and cancel it, so the lease is renewed
        // first.
        self.renew_if_due(app, place).await?;
        tokio::select! {
            done = doing => done,
            problem = self.keep(app, place) => Err(problem),
        }
    }

    /// Renews the lease repeatedly until it is lost.
    async fn keep(&mut self, app: &App, place: &PolicyConsumer) -> Problem {
        loop {
            tokio::time::sleep_until(self.renewed + RENEWAL).await;
            if let Err(problem) = self.renew_if_due(app, place).await {
                return problem;
            }
            tokio::time::sleep(WRITE_INTERVAL).await;
        }
    }

    /// Renews the lease if it is due. A database error is ignored as long as no other server can
    /// have acquired the lease.
    async fn renew_if_due(&mut self, app: &App, place: &PolicyConsumer) -> Result<(), Problem> {
        if self.renewed.elapsed() < RENEWAL {
            return Ok(());
        }
        let (clock, started) = (app.engine.log().clock(), Instant::now());
        match consumer::acquire(&app.pool, clock, CONSUMER, self.owner, LEASE).await {
            Ok(Some(held)) if held.owner_epoch == place.lease.owner_epoch => {
                self.renewed = started;
                Ok(())
            }
            Ok(Some(_) | None) => Err(lease_lost()),
            Err(_) if self.renewed.elapsed() < LEASE => Ok(()),
            Err(reason) => Err(reason.into()),
        }
    }
}

fn lease_lost() -> Problem {
    Problem::internal("policies stopped: another server holds their consumer lease")
}
