//! The log as the program holds it.
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
    AppendError, Appended, Archives, Clock, Commit, FormatMismatch, KeyRing, LogError, Stored,
    SyncView,
    append::{
        Appender, Head, HeadPublisher, Intake, PendingCommit, PublishedHead, Queue, StatementCache,
        Versions, connection,
    },
    cache::Cache,
    migrate,
    nearby::Nearby,
    stored::number,
};

/// How the log is opened.
#[derive(Clone)]
pub struct Options {
    /// Views that are written by the append statement, in this order.
    pub sync_views: Vec<Arc<dyn SyncView>>,
    /// Format of the log that this program reads and writes. Tests set another one.
    pub format: i32,
    /// Where time comes from.
    pub clock: Clock,
    /// How many commits may wait for an answer before callers are told to come back later; a large one counts as
    /// several.
    pub queue: u32,
    /// How long the database may take for one answer before the writer asks on another connection.
    pub answer: Duration,
    /// How long an idempotency key is remembered.
    pub key_ttl: Duration,
    /// How often to look whether another server wrote, while this one writes nothing. `None`: it is alone.
    pub watch_others: Option<Duration>,
    /// How many aggregates' states are kept in memory, about. Half of them are of those that were asked for since they
    /// came; a quarter of all that is asked for again and again stays.
    pub cached_states: usize,
    /// Where events are read that have no rows any more.
    pub archives: Archives,
    /// What seals and opens the words of subjects. Without any they are written in clear.
    pub keys: KeyRing,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            sync_views: Vec::new(),
            format: migrate::format(),
            clock: Clock::system(),
            queue: 4_096,
            answer: Duration::from_secs(10),
            key_ttl: Duration::from_secs(24 * 60 * 60),
            watch_others: Some(Duration::from_millis(250)),
            cached_states: 40_000,
            archives: Archives::default(),
            keys: KeyRing::default(),
        }
    }
}

/// The log: append, read, follow, prove. Cheap to clone; all clones are one writer.
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
    /// The places of the queue.
    pub places: Arc<Semaphore>,
    /// Large commits that may wait for places.
    pub large: Semaphore,
    pub queue: u32,
    pub positions: watch::Receiver<u64>,
    /// `None`: no other server writes to this log.
    pub read_at: Option<watch::Receiver<Instant>>,
    pub seen: watch::Receiver<PublishedHead>,
    pub tail: broadcast::WeakSender<Arc<[Stored]>>,
    pub cache: Arc<Cache>,
    pub nearby: Arc<Nearby>,
    pub archives: Archives,
    pub keys: KeyRing,
}

/// A commit that takes more places than this waits for them where the queue is full.
const SMALL: u32 = 1;
/// How many such commits wait at most, and for how long.
const LARGE_MOST: usize = 16;
const LARGE_WAIT: Duration = Duration::from_secs(5);
/// How long a caller should stay away from a full queue.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How many batches a slow listener of [`EventLog::tail`] may be behind.
const TAIL: usize = 1_024;

impl Shared {
    /// Places of the queue. A small commit gets its places at once or is rejected with a retry. A large one waits for its
    /// turn: no later commit gets places before it, however many small ones there are.
    async fn places(&self, wanted: u32) -> Result<OwnedSemaphorePermit, AppendError> {
        let full = AppendError::Full { retry_after: RETRY_AFTER };
        match self.places.clone().try_acquire_many_owned(wanted) {
            Ok(places) => return Ok(places),
            Err(TryAcquireError::Closed) => return Err(AppendError::Closed),
            Err(TryAcquireError::NoPermits) if wanted <= SMALL => return Err(full),
            Err(TryAcquireError::NoPermits) => {}
        }
        // Waiting commits take memory, so their number is limited.
        let Ok(_waiting) = self.large.try_acquire() else { return Err(full) };
        match timeout(LARGE_WAIT, self.places.clone().acquire_many_owned(wanted)).await {
            Ok(places) => places.map_err(|_| AppendError::Closed),
            Err(_) => Err(full),
        }
    }
}

impl EventLog {
    /// Open the log and start its writer, which ends when the last clone is gone and everything is answered.
    ///
    /// # Errors
    /// [`LogError`]: no log, another format, a database that does not answer or does not keep texts as they are.
    pub async fn open(pool: PgPool, options: Options) -> Result<EventLog, LogError> {
        let connect = (*pool.connect_options()).clone();
        let mut connection = connection(&connect, options.answer).await?;
        let row = sqlx::query("select current_setting('server_encoding')")
            .fetch_one(&mut connection)
            .await?;
        let encoding: String = row.try_get(0)?;
        if encoding != "UTF8" {
            return Err(LogError::Encoding(encoding));
        }
        let there = sqlx::query("select to_regclass('log_head') is not null");
        if !there.fetch_one(&mut connection).await?.try_get::<bool, _>(0)? {
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
        let tail = broadcast::Sender::new(TAIL);
        let cache = Arc::new(Cache::of(options.cached_states));
        let nearby = Arc::new(Nearby::default());
        let shared = Shared {
            pool,
            log_id: head.log_id.clone(),
            format: options.format,
            clock: options.clock.clone(),
            arrivals,
            places: Arc::new(Semaphore::new(options.queue as usize)),
            large: Semaphore::new(LARGE_MOST),
            queue: options.queue,
            positions: watched_positions,
            read_at: options.watch_others.map(|_| watched_reads),
            seen: watched,
            tail: tail.downgrade(),
            cache: cache.clone(),
            nearby: nearby.clone(),
            archives: options.archives,
            keys: options.keys.clone(),
        };
        let appender = Appender {
            options: connect,
            response_timeout: options.answer,
            clock: options.clock,
            format: options.format,
            key_ttl: options.key_ttl,
            statements: StatementCache::new(&options.sync_views),
            projections: options.sync_views,
            publisher: HeadPublisher { head: seen, positions, tail, read_at },
            connection: Some(connection),
            head,
            versions: Versions::default(),
            cache,
            tree: nearby,
            keys: options.keys,
            is_outdated: false,
            next: None,
            acks: Default::default(),
        };
        let writing = tokio::spawn(appender.run(Queue::new(queue), options.watch_others));
        tokio::spawn(async move {
            if let Err(error) = writing.await {
                tracing::error!(error = %error, "The log's writer panicked; nothing is appended any more");
            }
        });
        Ok(EventLog { shared: Arc::new(shared) })
    }

    /// Write a commit, all or nothing. When this returns `Ok`, it is durable. A commit without events is
    /// checked at the database all the same. If the caller goes away, the commit may still be written.
    ///
    /// # Errors
    /// [`AppendError`]; nothing of the commit was written.
    pub async fn append(&self, commit: Commit) -> Result<Appended, AppendError> {
        let shared = &self.shared;
        let keys = shared.keys.to_seal(&shared.pool, &commit, &shared.clock).await?;
        let intake = Intake::of(commit, keys.as_ref())?;
        let (answer, answered) = oneshot::channel();
        // However large it is, it fits into an empty queue.
        let wanted = u32::try_from(intake.capacity()).unwrap_or(u32::MAX).min(self.shared.queue);
        let place = self.shared.places(wanted).await?;
        let pending = PendingCommit { intake, response: answer, _capacity: place };
        self.shared.arrivals.send(pending).map_err(|_| AppendError::Closed)?;
        answered.await.map_err(|_| AppendError::Closed)?
    }

    /// Checks that the log still has this program's format, as the database says now.
    ///
    /// # Errors
    /// [`LogError::Format`] if another version has migrated it: this program writes nothing any more.
    pub async fn is_ours(&self) -> Result<(), LogError> {
        let row = sqlx::query("select format from log_head").fetch_one(self.pool()).await?;
        let (known, found) = (self.shared.format, row.try_get(0)?);
        if found == known { Ok(()) } else { Err(FormatMismatch { known, found }.into()) }
    }

    /// The position of the last event, as the database says now.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn current_position(&self) -> Result<u64, LogError> {
        let position = sqlx::query("select position from log_head").fetch_one(self.pool()).await?;
        Ok(number(position.try_get(0)?))
    }

    /// Whether another version of the program has migrated the tables, as far as this process has read the log: events
    /// that it has read may be of that version.
    pub fn is_outdated(&self) -> bool {
        self.shared.seen.borrow().format != self.shared.format
    }

    /// The ULID that was made with the database.
    pub fn log_id(&self) -> &str {
        &self.shared.log_id
    }

    /// How often an operator declared that history may have been lost.
    pub fn epoch(&self) -> u64 {
        self.shared.seen.borrow().epoch
    }

    /// The position of the last event that this process knows of; 0: there is none.
    pub fn position(&self) -> u64 {
        *self.shared.positions.borrow()
    }

    /// Waits until the writer has ended: nothing can be appended any more.
    pub async fn ended(&self) {
        let mut positions = self.positions();
        while positions.changed().await.is_ok() {}
    }

    /// The moment up to which this process knows the log: [`EventLog::position`] is at least what the head was then. It
    /// falls behind when the database does not answer. Read it before the position.
    pub fn read_at(&self) -> Instant {
        self.shared.read_at.as_ref().map_or_else(Instant::now, |at| *at.borrow())
    }

    /// The position as it grows.
    pub fn positions(&self) -> watch::Receiver<u64> {
        self.shared.positions.clone()
    }

    /// Wait until this process knows of a position.
    ///
    /// # Errors
    /// [`LogError::NoLog`] if the writer has ended first.
    pub async fn reached(&self, position: u64) -> Result<(), LogError> {
        let mut positions = self.positions();
        positions.wait_for(|at| *at >= position).await.map_err(|_| LogError::NoLog)?;
        Ok(())
    }

    /// The batches from now on, as they become durable, in order. A listener that falls behind, or that sees a
    /// first position that is not the one after its last, reads the gap with [`EventLog::read`].
    pub fn tail(&self) -> broadcast::Receiver<Arc<[Stored]>> {
        match self.shared.tail.upgrade() {
            Some(tail) => tail.subscribe(),
            // The writer has ended: a channel that is closed already.
            None => broadcast::channel(1).1,
        }
    }

    /// The connections that reads use.
    pub fn pool(&self) -> &PgPool {
        &self.shared.pool
    }

    /// Where events are read that have no rows any more.
    pub fn archives(&self) -> &Archives {
        &self.shared.archives
    }

    /// What seals and opens the words of subjects.
    pub fn ring(&self) -> &KeyRing {
        &self.shared.keys
    }

    /// The clock that the log was opened with.
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }
}
