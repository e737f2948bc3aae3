//! Erasure after `subject.shredded`: deletes the key immediately, and then every copy that the
//! server can reach. Each step is idempotent, so another server can continue after a crash.

use std::time::Duration;

use domain::{
    actor::Actor,
    subject::{Subject, SubjectCommand, SubjectId},
};
use event_log::{
    Meta,
    encryption::shred::{self, DueErasure},
};
use futures::FutureExt as _;
use tokio::{sync::broadcast::error::RecvError, time::Instant};

use crate::{
    erasure::{self, Outcome},
    execute::Call,
    ids,
    problem::{Code, Problem},
    state::App,
};

/// Interval between checks for remaining copies.
const TICK: Duration = Duration::from_secs(1);
/// First wait before a failed erasure is retried. The wait doubles with each failure, up to
/// [`MAX_RETRY`].
const RETRY: Duration = Duration::from_secs(5);
const MAX_RETRY: Duration = Duration::from_secs(60 * 60);
/// Advisory lock of the server that erases copies. The database releases the lock when the
/// connection closes, so the lock does not depend on a clock.
const LOCK: &str = "select pg_try_advisory_lock(hashtextextended('stead/erasure', 0))";

/// Deletes keys and copies until the server stops.
pub(crate) async fn run(app: App) {
    let mut tail = app.log().tail();
    // Includes shreddings that were recorded while no server ran, or that a crashed server left
    // unfinished.
    let mut look_back = true;
    let (mut keys, mut of_copies) = (Backoff::default(), Backoff::default());
    let mut ticks = tokio::time::interval(TICK);
    loop {
        if look_back && keys.is_due() {
            look_back = !keys.after(delete_keys(&app).await);
        }
        tokio::select! {
            () = app.stopping.cancelled() => return,
            batch = tail.recv() => match batch {
                Ok(batch) => {
                    if batch.iter().any(|event| event.event_type == "subject.shredded") {
                        look_back = true;
                        // A subject that waits for an archive does not delay the others.
                        of_copies = Backoff::default();
                    }
                }
                Err(RecvError::Lagged(_)) => look_back = true,
                Err(RecvError::Closed) => return,
            },
            _ = ticks.tick() => if of_copies.is_due() {
                of_copies.after(erase_copies(&app).await);
            },
        }
    }
}

/// Exponential back-off after a failure.
struct Backoff {
    wait: Duration,
    due: Instant,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { wait: RETRY, due: Instant::now() }
    }
}

impl Backoff {
    fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    /// Updates the back-off. Returns true if the attempt succeeded.
    fn after(&mut self, done: Result<(), Problem>) -> bool {
        let Err(problem) = done else {
            *self = Backoff::default();
            return true;
        };
        let (detail, wait) = (&problem.detail, self.wait.as_secs());
        tracing::warn!(error = %detail, retry_in_s = wait, "Erasure is incomplete; the server retries it");
        self.due = Instant::now() + self.wait;
        self.wait = (self.wait * 2).min(MAX_RETRY);
        false
    }
}

/// Deletes the keys of shredded subjects.
async fn delete_keys(app: &App) -> Result<(), Problem> {
    for subject in shred::unfinished(&app.pool).await? {
        app.log().key_ring().mark_shredded(&subject);
        shred::delete_key(&app.pool, &subject, app.now()).await?;
    }
    Ok(())
}

/// Erases the copies of all shredded subjects together.
async fn erase_copies(app: &App) -> Result<(), Problem> {
    let of = shred::with_copies(&app.pool).await?;
    // Erases copies only after all keys are deleted, so that no later read creates a readable copy.
    if of.is_empty() || !shred::unfinished(&app.pool).await?.is_empty() {
        return Ok(());
    }
    // Concurrent rebuilds by two servers would undo each other. Detaching the connection closes it
    // at the end, which releases the lock.
    let mut lock = app.owner().acquire().await?.detach();
    if !sqlx::query_scalar(LOCK).fetch_one(&mut lock).await? {
        return Ok(());
    }
    let known = |due: DueErasure| Some((due.subject.parse::<SubjectId>().ok()?, due));
    let due: Vec<(SubjectId, DueErasure)> = of.into_iter().filter_map(known).collect();
    let subjects: Vec<SubjectId> = due.iter().map(|(subject, _)| *subject).collect();
    let Outcome { erased, incomplete: left } = erasure::erase(app, &subjects).await?;
    for (subject, due) in due.into_iter().filter(|(subject, _)| erased.contains(subject)) {
        let call = Call::of(Meta::new(Actor::System, ids::new_ulid().to_string()));
        let done = app.engine.transact(&call, move |unit| {
            async move {
                unit.handle::<Subject>(subject, SubjectCommand::CompleteErasure).await.map(drop)
            }
            .boxed()
        });
        done.await?;
        if shred::record_erasure(&app.pool, &due, app.now()).await? {
            tracing::info!(subject = %subject, "Erased all copies");
        }
    }
    left.map_or(Ok(()), |why| Err(Problem::new(Code::ArchiveMissing, why)))
}
