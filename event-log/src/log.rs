//! The event log: opening, appends, and the position that this process knows.
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sqlx::{PgPool, Row};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, broadcast, mpsc, oneshot, watch},
    time::timeout,
};

use crate::{
    AppendError, Appended, Archives, Clock, Commit, FormatMismatch, InlineProjection, KeyRing,
    LogError, StoredEvent,
    append::{
        Appender, Head, HeadPublisher, Intake, PendingCommit, PublishedHead, Queue, StatementCache,
        Versions, connection,
    },
    cache::Cache,
    migrate,
    stored::number,
    tree_cache::TreeCache,
};

/// Options for opening the log.
#[derive(Clone)]
pub struct Options {
    /// Inline projections, in the order in which the append statement writes them.
    pub inline_projections: Vec<Arc<dyn InlineProjection>>,
    /// Format of the log that this program reads and writes. Tests set another one.
    pub format: i32,
    /// Source of time.
    pub clock: Clock,
    /// Capacity of the queue in slots. Until its acknowledgement, a commit occupies one slot, and
    /// one more per 16 KiB. Without free slots, an append fails with a retry delay; large commits
    /// wait first.
    pub queue: u32,
    /// Timeout of a query of the writer. After a timeout, the writer opens a new connection.
    pub query_timeout: Duration,
    /// Time until an idempotency key expires.
    pub key_ttl: Duration,
    /// Interval at which an idle server checks for writes of other servers. `None` if no other
    /// server writes.
    pub poll_interval: Option<Duration>,
    /// Approximate number of aggregate states in the cache. One half is for states that were
    /// requested again after they were stored, the other half for the rest.
    pub cached_states: usize,
    /// Archives of events without rows.
    pub archives: Archives,
    /// Keys that encrypt and decrypt personal data fields. Without keys these fields are written in
    /// plaintext.
    pub keys: KeyRing,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            inline_projections: Vec::new(),
            format: migrate::format(),
            clock: Clock::system(),
            queue: 4_096,
            query_timeout: Duration::from_secs(10),
            key_ttl: Duration::from_secs(24 * 60 * 60),
            poll_interval: Some(Duration::from_millis(250)),
            cached_states: 40_000,
            archives: Archives::default(),
            keys: KeyRing::default(),
        }
    }
}

/// The event log. Clones share one writer, and cloning is cheap.
#[derive(Clone)]
pub struct EventLog {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub pool: PgPool,
    pub log_id: String,
    pub format: i32,
    pub clock: Clock,
    pub arrivals: mpsc::UnboundedSender<PendingCommit>,
    /// Slots of the queue.
    pub slots: Arc<Semaphore>,
    /// Permits of large commits that wait for slots.
    pub large: Semaphore,
    pub queue: u32,
    pub positions: watch::Receiver<u64>,
    /// Time of the last read of the head. `None` if no other server writes to this log.
    pub read_at: Option<watch::Receiver<Instant>>,
    pub published: watch::Receiver<PublishedHead>,
    pub tail: broadcast::WeakSender<Arc<[StoredEvent]>>,
    pub cache: Arc<Cache>,
    pub tree_cache: Arc<TreeCache>,
    pub archives: Archives,
    pub keys: KeyRing,
}

/// Number of slots above which a commit waits if the queue is full.
const MAX_SMALL_SLOTS: u32 = 1;
/// Maximum number of large commits that wait for slots.
const MAX_LARGE_WAITING: usize = 16;

/// Timeout of a large commit that waits for slots.
const LARGE_WAIT: Duration = Duration::from_secs(5);
/// Retry delay of a caller that finds the queue full.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Maximum lag of a receiver of [`EventLog::tail`], in batches.
const TAIL_CAPACITY: usize = 1_024;

impl Shared {
    /// Acquires slots of the queue. A small commit gets its slots immediately or is rejected with a
    /// retry delay. A large commit waits in line, and no later commit gets slots before it.
    async fn acquire_slots(&self, slots: u32) -> Result<OwnedSemaphorePermit, AppendError> {
        let full = AppendError::Full { retry_after: RETRY_AFTER };
        match self.slots.clone().try_acquire_many_owned(slots) {
            Ok(permit) => return Ok(permit),
            Err(TryAcquireError::Closed) => return Err(AppendError::Closed),
            Err(TryAcquireError::NoPermits) if slots <= MAX_SMALL_SLOTS => return Err(full),
            Err(TryAcquireError::NoPermits) => {}
        }
        // Waiting commits use memory, so their number is limited.
        let Ok(_waiting) = self.large.try_acquire() else { return Err(full) };
        match timeout(LARGE_WAIT, self.slots.clone().acquire_many_owned(slots)).await {
            Ok(permit) => permit.map_err(|_| AppendError::Closed),
            Err(_) => Err(full),
        }
    }
}

impl EventLog {
    /// Opens the log and starts its writer. The writer ends after the last clone is dropped and
    /// every waiting commit has its response.
    ///
    /// # Errors
    /// [`LogError`]: no log, another format, a failed database operation, or a database encoding
    /// that does not preserve text byte for byte.
    pub async fn open(pool: PgPool, options: Options) -> Result<EventLog, LogError> {
        let connect = (*pool.connect_options()).clone();
        let mut connection = connection(&connect, options.query_timeout).await?;
        let row = sqlx::query("select current_setting('server_encoding')")
            .fetch_one(&mut connection)
            .await?;
        let encoding: String = row.try_get(0)?;
        if encoding != "UTF8" {
            return Err(LogError::Encoding(encoding));
        }
        let exists = sqlx::query("select to_regclass('log_head') is not null");
        if !exists.fetch_one(&mut connection).await?.try_get::<bool, _>(0)? {
            return Err(LogError::NoLog);
        }
        let opened = Instant::now();
        migrate::check_format_is(&mut connection, options.format).await?;
        let head = Head::read(&mut connection).await?.ok_or(LogError::NoLog)?;
        options.keys.check(&mut connection).await?;
        let (arrivals, queue) = mpsc::unbounded_channel();
        let (positions, watched_positions) = watch::channel(head.position);
        let (seen, watched) = watch::channel(head.published());
        let (read_at, watched_reads) = watch::channel(opened);
        let tail = broadcast::Sender::new(TAIL_CAPACITY);
        let cache = Arc::new(Cache::of(options.cached_states));
        let tree_cache = Arc::new(TreeCache::default());
        let shared = Shared {
            pool,
            log_id: head.log_id.clone(),
            format: options.format,
            clock: options.clock.clone(),
            arrivals,
            slots: Arc::new(Semaphore::new(options.queue as usize)),
            large: Semaphore::new(MAX_LARGE_WAITING),
            queue: options.queue,
            positions: watched_positions,
            read_at: options.poll_interval.map(|_| watched_reads),
            published: watched,
            tail: tail.downgrade(),
            cache: cache.clone(),
            tree_cache: tree_cache.clone(),
            archives: options.archives,
            keys: options.keys.clone(),
        };
        let appender = Appender {
            options: connect,
            response_timeout: options.query_timeout,
            clock: options.clock,
            format: options.format,
            key_ttl: options.key_ttl,
            statements: StatementCache::new(&options.inline_projections),
            projections: options.inline_projections,
            publisher: HeadPublisher { head: seen, positions, tail, read_at },
            connection: Some(connection),
            head,
            versions: Versions::default(),
            cache,
            tree: tree_cache,
            keys: options.keys,
            is_outdated: false,
            next: None,
            acks: Default::default(),
        };
        #[expect(clippy::disallowed_methods, reason = "the task below awaits it")]
        let writing = tokio::spawn(appender.run(Queue::new(queue), options.poll_interval));
        #[expect(clippy::disallowed_methods, reason = "it reports a panic of the log writer")]
        tokio::spawn(async move {
            if let Err(error) = writing.await {
                tracing::error!(error = %error, "Log writer panicked; no further events can be appended");
            }
        });
        Ok(EventLog { shared: Arc::new(shared) })
    }

    /// Appends a commit, completely or not at all. The commit is durable when `append` returns
    /// `Ok`. The database also checks the guards of a commit without events. If the caller drops
    /// the future, the commit may still be written.
    ///
    /// # Errors
    /// [`AppendError`]. The commit was not written, except possibly after [`AppendError::Closed`].
    pub async fn append(&self, commit: Commit) -> Result<Appended, AppendError> {
        let shared = &self.shared;
        let keys = shared.keys.encryption_keys(&shared.pool, &commit, &shared.clock).await?;
        let intake = Intake::of(commit, keys.as_ref())?;
        let (sender, receiver) = oneshot::channel();
        // A commit of any size fits into an empty queue.
        let slots = u32::try_from(intake.capacity()).unwrap_or(u32::MAX).min(self.shared.queue);
        let permit = self.shared.acquire_slots(slots).await?;
        let pending = PendingCommit { intake, response: sender, _capacity: permit };
        self.shared.arrivals.send(pending).map_err(|_| AppendError::Closed)?;
        receiver.await.map_err(|_| AppendError::Closed)?
    }

    /// Checks in the database that the log still has this program's format.
    ///
    /// # Errors
    /// [`LogError::Format`] if another version has migrated the log. This program can then no
    /// longer write to the log.
    pub async fn check_layout(&self) -> Result<(), LogError> {
        let row = sqlx::query("select format from log_head").fetch_one(self.pool()).await?;
        let (known, found) = (self.shared.format, row.try_get(0)?);
        if found == known { Ok(()) } else { Err(FormatMismatch { known, found }.into()) }
    }

    /// Returns the position of the last event in the database.
    ///
    /// # Errors
    /// If a database operation fails.
    pub async fn current_position(&self) -> Result<u64, LogError> {
        let position = sqlx::query("select position from log_head").fetch_one(self.pool()).await?;
        Ok(number(position.try_get(0)?))
    }

    /// Returns true if this process knows that another version has migrated the tables. Events that
    /// this process has read may be of that version.
    pub fn is_outdated(&self) -> bool {
        self.shared.published.borrow().format != self.shared.format
    }

    /// Id of the log, a ULID created with the database.
    pub fn log_id(&self) -> &str {
        &self.shared.log_id
    }

    /// Epoch of the log. An operator increments it after a restore that may have lost events.
    pub fn epoch(&self) -> u64 {
        self.shared.published.borrow().epoch
    }

    /// Position of the last event that this process knows; 0 without events.
    pub fn position(&self) -> u64 {
        *self.shared.positions.borrow()
    }

    /// Waits until the writer has ended and nothing more can be appended.
    pub async fn ended(&self) {
        let mut positions = self.positions();
        while positions.changed().await.is_ok() {}
    }

    /// Returns the time at which this process last read the head, or the current time if no other
    /// server writes to the log. [`EventLog::position`] is at least the head at that time. The time
    /// stops advancing while the database is not reachable. Read the time before the position.
    pub fn read_at(&self) -> Instant {
        self.shared.read_at.as_ref().map_or_else(Instant::now, |at| *at.borrow())
    }

    /// Receiver of the changes of the position.
    pub fn positions(&self) -> watch::Receiver<u64> {
        self.shared.positions.clone()
    }

    /// Waits until this process knows a position.
    ///
    /// # Errors
    /// [`LogError::NoLog`] if the writer has ended first.
    pub async fn wait_for(&self, position: u64) -> Result<(), LogError> {
        let mut positions = self.positions();
        positions.wait_for(|at| *at >= position).await.map_err(|_| LogError::NoLog)?;
        Ok(())
    }

    /// Returns a receiver of later batches in order, after they are durable. A receiver that lags,
    /// or that finds a gap before a batch, must read the missing events with [`EventLog::read`].
    pub fn tail(&self) -> broadcast::Receiver<Arc<[StoredEvent]>> {
        match self.shared.tail.upgrade() {
            Some(tail) => tail.subscribe(),
            // The writer has ended, so the channel is closed.
            None => broadcast::channel(1).1,
        }
    }

    /// Connections for reads.
    pub fn pool(&self) -> &PgPool {
        &self.shared.pool
    }

    /// Archives of events without rows.
    pub fn archives(&self) -> &Archives {
        &self.shared.archives
    }

    /// Keys that encrypt and decrypt personal data fields.
    pub fn key_ring(&self) -> &KeyRing {
        &self.shared.keys
    }

    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }
}
