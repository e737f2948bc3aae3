//! Shared state of all handlers and loops.
use std::{
    ops::Deref,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use domain::decider::Timestamp;
use event_log::{EventLog, Source};
use projections::Projections;
use sqlx::PgPool;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::{
    auth::{Assertions, PrincipalCache, Tokens, sessions::LoginCodes},
    changed_installs::ChangedInstallsCache,
    clock::Clock,
    configs::ConfigCache,
    dispatch::Dispatch,
    execute::Engine,
    keys::Keys,
    logs::LogStore,
    metrics::Metrics,
    reach::Reachable,
    recent_changes::RecentChanges,
    registry::{Manifests, Registry},
    state_versions::Uploads,
    tasks::Tasks,
    webhooks,
    write_behind::{grants::GrantQueue, idempotent_responses::ResponseQueue},
};

/// Shared reference to the server. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Inner>);

/// State of the server, which all clones of [`App`] share.
pub struct Inner {
    /// Connections to the database, as the role that inserts and selects.
    pub pool: PgPool,
    /// Connections as the owner of the tables, if configured.
    pub owner: Option<PgPool>,
    pub engine: Engine,
    /// Projections, which follow the log.
    pub(crate) projections: Projections,
    /// Cache of published configs.
    pub configs: ConfigCache,
    pub keys: Keys,
    /// Principals of the Control API, and revoked runners.
    pub(crate) principals: PrincipalCache,
    /// Signs and verifies tokens of runners and jobs.
    pub(crate) tokens: Tokens,
    /// Recently used assertions of runners, to detect replays.
    pub(crate) assertions: Assertions,
    /// One-time codes of the dashboard.
    pub(crate) login_codes: LoginCodes,
    /// Streams of recent events, for the open pages of the dashboard.
    pub(crate) recent_changes: RecentChanges,
    /// Dispatcher of jobs, which also tracks the contact with runners.
    pub(crate) dispatch: Dispatch,
    /// Wakes the deliveries of webhooks after a change.
    pub(crate) webhook_wakeup: Notify,
    pub(crate) webhook_sender: webhooks::Sender,
    /// Queue of issued grants to store.
    pub(crate) grants: GrantQueue,
    /// Queue of responses to store.
    pub responses: ResponseQueue,
    pub logs: LogStore,
    /// Transfers of states in progress.
    pub state_uploads: Uploads,
    pub registry: Registry,
    /// Cache of job manifests by digest.
    pub manifests: Manifests,
    pub config: Config,
    pub(crate) metrics: Metrics,
    pub tasks: Tasks,
    /// Permit for one self-check at a time, because a self-check reads all stored data.
    pub doctor_permit: Arc<Semaphore>,
    /// Permits for as-of queries of projections, because each one holds a connection.
    pub as_of_permits: Arc<Semaphore>,
    pub changed_installs: ChangedInstallsCache,
    pub clock: Clock,
    /// Cancelled at shutdown. Long polls and streams then return.
    pub stopping: CancellationToken,
}

/// Maximum number of concurrent as-of queries of projections.
pub(crate) const MAX_AS_OF_QUERIES: usize = 2;

/// Configuration from the start options.
#[derive(Debug, Clone)]
pub struct Config {
    /// Data directory with keys, registry and owner token.
    pub data: PathBuf,
    /// Unique name of this server on its database, which stays the same after a restart.
    pub server: String,
    /// Public URL of the Control API.
    pub control_url: String,
    /// Public URL of the Runner API, which the enrol command prints.
    pub runner_url: String,
    /// Digest of the private root certificate that runners pin, as `sha256:…`. `None` if the chain
    /// does not end with a root, or if the Runner API has no certificate.
    pub runner_ca: Option<String>,
    /// Public key of this server's own plugins, 64 hexadecimal digits, which the enrol command
    /// pins. Empty until this server has published a plugin with this key.
    pub plugin_publisher: OnceLock<String>,
    /// Registry of the vendor, to which builds push. `None` means the registry of the server.
    pub registry: Option<oci_registry::VendorLocation>,
    /// Maximum size of an artifact blob in bytes.
    pub max_blob_bytes: u64,
    /// Size of the artifacts of an app, in bytes, above which the server deletes those that nothing
    /// needs.
    pub artifact_quota: u64,
    /// Addresses that webhooks may reach.
    pub webhooks_reach: Reachable,
    /// Limits on the bytes that runners may upload for their reports.
    pub uploads: event_log::upload::Quota,
    /// Maximum size of all encrypted states of one install in bytes.
    pub state_quota: u64,
    /// Number of positions per partition of the log.
    pub partition_events: u64,
}

impl App {
    pub fn new(inner: Inner) -> Self {
        App(Arc::new(inner))
    }

    /// Connections for creating tables: connections of the owner if configured, or else connections
    /// of the server. The server's role may also be permitted to create tables.
    pub fn owner(&self) -> &PgPool {
        self.owner.as_ref().unwrap_or(&self.pool)
    }

    /// Source of the log with the owner's connections.
    pub fn owner_source(&self) -> Source {
        Source { pool: self.owner().clone(), ..Source::from(self.log()) }
    }

    /// The log, for reading and following. Use cases write to it through the engine.
    pub fn log(&self) -> &EventLog {
        self.engine.log()
    }

    /// Current time of the server's clock.
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
