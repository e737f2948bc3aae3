//! The projector: updates the asynchronous projections. It applies a page of events in memory,
//! writes the rows in bulk, and advances the consumer positions in the same transaction. So each
//! event is applied exactly once, even after a crash.
//!
//! Any number of servers may run the projector on one database: it locks the positions while it
//! writes a page.
use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use event_log::{EventLog, LogError, Source};
use futures::FutureExt as _;
use sqlx::{PgConnection, Row};
use tokio::sync::{Notify, watch};
use tracing::{error, info, warn};

use crate::{
    Class, RecordedEvent,
    catalogue::{LIVE, views},
    event,
    fold::{DynProjection, RowWriter},
    rebuild,
};

/// Maximum number of events in a page.
const PAGE: u64 = 1_000;
/// Wait after an error.
const RETRY: Duration = Duration::from_secs(1);
/// Number of panics within [`PANIC_WINDOW`] after which the projector still restarts.
const MAX_PANICS: usize = 5;
/// Time window in which panics are counted.
const PANIC_WINDOW: Duration = Duration::from_secs(300);
/// Timeout of a page. The operating system may take a quarter of an hour to report a lost network
/// connection.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout after which the database ends an idle transaction. Such a transaction locks the
/// positions, and all other servers wait for them.
const IDLE_TIMEOUT: &str = "set local idle_in_transaction_session_timeout = '5s'";
/// Time in which commits collect for one page. Without it, each commit would cause its own page. A
/// caller that waits for a position ends the wait early.
const GATHER: Duration = Duration::from_millis(10);
/// Interval between checks of the positions that other servers wrote.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The projections did not reach a position in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read the projections at position {position}: they are at position {at}; try again")]
pub struct ProjectionLag {
    /// Position that the projections have reached.
    pub at: u64,
    /// Position that the caller requires.
    pub position: u64,
}

/// The running asynchronous projections. They stop when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Projections {
    reached: watch::Receiver<u64>,
    wake: Arc<Notify>,
    is_running: Arc<AtomicBool>,
}

impl Projections {
    /// Starts the projector. Projections whose rows have another version are rebuilt first.
    ///
    /// # Errors
    /// [`rebuild::RebuildError`].
    pub async fn start(log: &EventLog) -> Result<Projections, rebuild::RebuildError> {
        prepare(log).await?;
        let (sender, reached) = watch::channel(0);
        let wake = Arc::new(Notify::new());
        let following = views().into_iter().filter(|view| view.class() == Class::Asynchronous);
        let mut projector = Projector {
            source: Source::from(log),
            views: following.map(|view| (view.writer(), view)).collect(),
            known: HashMap::new(),
            reached: sender,
            wake: Arc::clone(&wake),
        };
        let (is_running, positions) = (Arc::new(AtomicBool::new(true)), log.positions());
        let running = Arc::clone(&is_running);
        #[expect(clippy::disallowed_methods, reason = "`supervised` restarts it after a panic")]
        tokio::spawn(async move { projector.supervised(positions, &running).await });
        Ok(Projections { reached, wake, is_running })
    }

    /// Returns false if the projector has stopped, or panicked and is about to restart.
    pub fn is_running(&self) -> bool {
        self.is_running.load(Ordering::Relaxed)
    }

    /// Waits until the projector has stopped permanently.
    pub async fn ended(&self) {
        let mut reached = self.reached.clone();
        while reached.changed().await.is_ok() {}
    }

    /// Position that all projections include.
    pub fn position(&self) -> u64 {
        *self.reached.borrow()
    }

    /// Receiver of the changes of [`Projections::position`].
    pub fn positions(&self) -> watch::Receiver<u64> {
        self.reached.clone()
    }

    /// Waits until all projections include a position.
    ///
    /// # Errors
    /// [`ProjectionLag`] after the timeout, or if the projector has stopped.
    pub async fn wait_for(&self, position: u64, timeout: Duration) -> Result<(), ProjectionLag> {
        let mut reached = self.reached.clone();
        if *reached.borrow() < position {
            self.wake.notify_one();
        }
        let result = tokio::time::timeout(timeout, reached.wait_for(|at| *at >= position)).await;
        match result {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(ProjectionLag { at: self.position(), position }),
        }
    }
}

/// Creates missing consumer rows. Rebuilds projections of another version, and new inline
/// projections of an existing log. A rebuild needs the role that owns the tables.
///
/// # Errors
/// [`rebuild::RebuildError`].
pub async fn prepare(source: impl Into<Source>) -> Result<(), rebuild::RebuildError> {
    let source = source.into();
    let pool = &source.pool;
    let mut outdated = vec![];
    for view in views() {
        let (name, version) = (view.name(), view.version());
        let known = sqlx::query("select version from log_consumer where name = $1 and shard = $2")
            .bind(name)
            .bind(LIVE)
            .fetch_all(pool)
            .await?;
        let known: Vec<i32> = known.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        if known.contains(&version) {
            continue;
        }
        let head = sqlx::query("select position from log_head").fetch_one(pool).await?;
        let empty = head.try_get::<i64, _>(0)? == 0;
        // An inline projection cannot catch up, so a rebuild must apply the events before its first
        // append.
        let missed = match view.class() {
            Class::Synchronous => !empty,
            Class::Asynchronous => false,
        };
        if !known.is_empty() {
            info!(projection = name, version, "Rebuilding projection with rows of another version");
            outdated.push(name);
        } else if missed {
            info!(projection = name, version, "Building new projection of an existing log");
            outdated.push(name);
        } else {
            rebuild::register(pool, name, version).await?;
        }
    }
    rebuild::rebuild_all(&source, &outdated, 1, |_| {}).await?;
    Ok(())
}

#[cfg(feature = "fault-injection")]
#[allow(clippy::panic, reason = "this is the injected fault")]
fn injected_fault() {
    if event_log::fault_injection::has(event_log::fault_injection::Fault::PanicInProjector) {
        panic!("injected fault");
    }
}

struct Projector {
    source: Source,
    views: Vec<(Box<dyn RowWriter>, Box<dyn DynProjection>)>,
    /// Consumer rows as this server last wrote them.
    known: HashMap<&'static str, ConsumerRow>,
    reached: watch::Sender<u64>,
    /// Notified when a caller waits for a position.
    wake: Arc<Notify>,
}

/// Consumer row of a projection. A swap of its tables changes the owner epoch.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ConsumerRow {
    position: u64,
    owner_epoch: i64,
}

impl Projector {
    /// Restarts the projector after a panic, up to the limit of panics.
    async fn supervised(&mut self, positions: watch::Receiver<u64>, is_running: &AtomicBool) {
        let mut panics: Vec<Instant> = vec![];
        loop {
            let run = AssertUnwindSafe(self.run(positions.clone())).catch_unwind().await;
            if run.is_ok() {
                return;
            }
            is_running.store(false, Ordering::Relaxed);
            panics.retain(|at| at.elapsed() < PANIC_WINDOW);
            panics.push(Instant::now());
            if panics.len() > MAX_PANICS {
                error!("Projector stopped after repeated panics");
                return;
            }
            error!(panics = panics.len(), "Projector panicked; the server restarts it");
            tokio::time::sleep(RETRY).await;
            self.forget();
            is_running.store(true, Ordering::Relaxed);
        }
    }

    async fn run(&mut self, mut positions: watch::Receiver<u64>) {
        while !self.reached.is_closed() {
            #[cfg(feature = "fault-injection")]
            injected_fault();
            positions.borrow_and_update();
            let timed_out = |_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()).into());
            match tokio::time::timeout(PAGE_TIMEOUT, self.page()).await.unwrap_or_else(timed_out) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => {
                    warn!(error = %error, "Cannot update projections, trying again");
                    self.forget();
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            }
            let closed = self.reached.closed();
            tokio::select! {
                changed = positions.changed() => if changed.is_err() { return },
                () = closed => return,
                () = tokio::time::sleep(POLL_INTERVAL) => continue,
            }
            let _woken = tokio::time::timeout(GATHER, self.wake.notified()).await;
        }
    }

    /// Applies one page. Returns true if there are more events.
    async fn page(&mut self) -> Result<bool, LogError> {
        let mut tx = self.source.pool.begin().await?;
        sqlx::Executor::execute(&mut *tx, IDLE_TIMEOUT).await?;
        let at = self.locked(&mut tx).await?;
        // Servers of other versions update every projection, so this server has nothing to do.
        let Some(from) = at.values().map(|at| at.position).min() else {
            tx.rollback().await?;
            return Ok(false);
        };
        let head = rebuild::head(&mut tx).await?;
        let to = head.min(from + PAGE);
        if to <= from {
            tx.rollback().await?;
            self.reached.send_replace(from);
            return Ok(false);
        }
        let mut all: Vec<&str> = vec![];
        self.views.iter().for_each(|(_, view)| all.extend(view.aggregates()));
        let events = event::page(&mut tx, &self.source, (from, to), &all).await?;
        for (writer, view) in &mut self.views {
            // Another version of the program rebuilt this projection and updates it now.
            let Some(&after) = at.get(view.name()) else { continue };
            if self.known.get(view.name()) != Some(&after) {
                writer.forget();
            }
            let is_relevant = |event: &&RecordedEvent| {
                event.position > after.position && view.aggregates().contains(&event.aggregate())
            };
            let relevant: Vec<&RecordedEvent> = events.iter().filter(is_relevant).collect();
            if !relevant.is_empty() {
                writer.project(&mut tx, &view.table(), &relevant).await?;
            }
        }
        let names: Vec<&str> = at.keys().copied().collect();
        #[cfg(feature = "fault-injection")]
        let to = to
            + u64::from(event_log::fault_injection::has(
                event_log::fault_injection::Fault::ConsumerOffByOne,
            ));
        sqlx::query(
            "update log_consumer set position = $1 where name = any($2) and shard = $3 \
             and position < $1",
        )
        .bind(i64::try_from(to).unwrap_or(i64::MAX))
        .bind(&names)
        .bind(LIVE)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        let updated = |at: ConsumerRow| ConsumerRow { position: at.position.max(to), ..at };
        self.known = at.into_iter().map(|(name, at)| (name, updated(at))).collect();
        let all = self.known.values().map(|at| at.position).min().unwrap_or(to);
        self.reached.send_replace(all);
        Ok(to < head)
    }

    /// Reads the consumer rows and locks them until the end of the transaction.
    async fn locked(
        &self,
        connection: &mut PgConnection,
    ) -> Result<HashMap<&'static str, ConsumerRow>, LogError> {
        let names: Vec<&str> = self.views.iter().map(|(_, view)| view.name()).collect();
        let rows = sqlx::query(
            "select name, version, position, owner_epoch from log_consumer where name = any($1) \
             and shard = $2 order by name, version for update",
        )
        .bind(&names)
        .bind(LIVE)
        .fetch_all(connection)
        .await?;
        let mut at = HashMap::new();
        for row in rows {
            let (name, version): (String, i32) = (row.try_get("name")?, row.try_get("version")?);
            let is_same =
                |view: &dyn DynProjection| view.name() == name && view.version() == version;
            if let Some((_, view)) = self.views.iter().find(|(_, view)| is_same(&**view)) {
                let position = u64::try_from(row.try_get::<i64, _>("position")?).unwrap_or(0);
                let owner_epoch = row.try_get("owner_epoch")?;
                at.insert(view.name(), ConsumerRow { position, owner_epoch });
            }
        }
        Ok(at)
    }

    fn forget(&mut self) {
        self.known.clear();
        for (writer, _) in &mut self.views {
            writer.forget();
        }
    }
}
