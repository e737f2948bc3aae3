//! What every handler and every loop shares.
use std::{ops::Deref, path::PathBuf, sync::Arc};

use chrono::SubsecRound as _;
use domain::decider::Timestamp;
use event_log::{EventLog, Source};
use projections::Projections;
use sqlx::PgPool;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    artifacts::{Manifests, Registry},
    auth::{Assertions, People, Tokens},
    background::{answers::Answers, evidence::Evidence, supervise::Tasks},
    compose::config::Configs,
    control::Ranges,
    dispatch::Dispatch,
    execute::Engine,
    keys::Keys,
    logs::LogStore,
    metrics::Metrics,
};

/// The server, by reference: cloning is a counter.
#[derive(Clone)]
pub struct App(Arc<Inner>);

/// The parts of the server.
pub struct Inner {
    /// Connections to the database, as the role that inserts and selects.
    pub pool: PgPool,
    /// Connections as the role that owns the tables, where it is known.
    pub owner: Option<PgPool>,
    /// Where commands go in; the log is behind it.
    pub engine: Engine,
    /// What follows the log; a read waits for it.
    pub views: Projections,
    /// Published configs, read once.
    pub configs: Configs,
    /// The server's signing keys.
    pub keys: Keys,
    /// Who may call the Control API, and which runners are revoked.
    pub people: People,
    /// Signs and verifies what runners call with.
    pub tokens: Tokens,
    /// What runners signed lately to get those.
    pub assertions: Assertions,
    /// Who waits for work, who has it, and who is still there.
    pub dispatch: Dispatch,
    /// Grants that are yet to be kept.
    pub evidence: Evidence,
    /// Answers of commands that are yet to be kept.
    pub answers: Answers,
    /// What jobs wrote.
    pub logs: LogStore,
    /// The vendor's artifacts.
    pub registry: Registry,
    /// Manifests that were read lately.
    pub manifests: Manifests,
    /// What was said at the start.
    pub config: Config,
    /// What is counted.
    pub metrics: Metrics,
    /// Which background tasks run.
    pub tasks: Tasks,
    /// For one examination at a time: it reads everything that is stored.
    pub examining: Arc<Semaphore>,
    /// For a few at a time who make a projection as it was: each keeps a connection.
    pub looking_back: Arc<Semaphore>,
    /// Which installs changed in the ranges of the log that were asked for last.
    pub changed: Ranges,
    /// Where time comes from.
    pub clock: Clock,
    /// Cancelled once: parked polls and streams answer and end.
    pub stopping: CancellationToken,
}

/// How many may look at a projection's past at a time.
pub const LOOKING_BACK: usize = 2;

/// Where time comes from; tests bring their own.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// What was said at the start.
#[derive(Debug, Clone)]
pub struct Config {
    /// The data directory: keys, registry, owner token.
    pub data: PathBuf,
    /// What this server is called among servers on one database; the same after a restart.
    pub server: String,
    /// How people reach the Control API.
    pub control_url: String,
    /// How runners reach the Runner API; the enrol command prints it.
    pub runner_url: String,
    /// The private root that runners pin, as `sha256:…`; none where a public CA or nobody vouches.
    pub runner_ca: Option<String>,
    /// The most bytes of one blob of an artifact.
    pub max_blob_bytes: u64,
    /// Most bytes that runners may upload for their reports.
    pub uploads: event_log::upload::Quota,
    /// How many positions a partition of the log has.
    pub partition_events: u64,
}

impl App {
    /// Put the parts together.
    pub fn new(inner: Inner) -> Self {
        App(Arc::new(inner))
    }

    /// Connections that may make tables; where no owner was named, ours, which may be allowed to.
    pub fn owner(&self) -> &PgPool {
        self.owner.as_ref().unwrap_or(&self.pool)
    }

    /// Where the log is read by who may make tables.
    pub fn owner_source(&self) -> Source {
        Source { pool: self.owner().clone(), ..Source::from(self.log()) }
    }

    /// The log, for reading and following; only the engine writes.
    pub fn log(&self) -> &EventLog {
        self.engine.log()
    }

    /// The moment, to the microsecond: what events and rules know.
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }
}

impl Deref for App {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// The machine's clock.
pub fn system_clock() -> Clock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everybody else is given")]
    Arc::new(|| chrono::Utc::now().trunc_subsecs(6))
}
