use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use event_log::Archives;
use sqlx::postgres::PgConnectOptions;

use super::{StartError, server_name};
use crate::{
    listen::{self, BoundListener, Certificate, ListenError},
    reach::Reachable,
    state::Config,
};

/// Start options of a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// Data directory with keys, registry and owner token. Locked by the caller.
    pub data: PathBuf,
    /// Database connection as the role that inserts and selects.
    pub database: PgConnectOptions,
    /// Database connection as the owner of the tables, which rebuilds require.
    pub owner: Option<PgConnectOptions>,
    /// Maximum number of database connections.
    pub connections: u32,
    /// Listen address of the Control API.
    pub control: SocketAddr,
    /// Listen address of the Runner API.
    pub runner: SocketAddr,
    /// Public URL of the Control API, if it differs from the listen address.
    pub control_url: Option<String>,
    /// Public URL of the Runner API, if it differs from the listen address.
    pub runner_url: Option<String>,
    /// Certificate for TLS, or `None` for listeners without TLS.
    pub certificate: Option<Certificate>,
    /// Listeners that use TLS.
    pub tls_for: TlsFor,
    /// True if a proxy terminates TLS.
    pub behind_proxy: bool,
    /// Maximum number of unauthenticated connections per address on each listener. `None` means a
    /// sixteenth of all connections, but at least 16.
    pub address_connections: Option<usize>,
    /// Registry of the vendor, to which builds push. `None` means the data directory.
    pub registry: Option<oci_registry::VendorLocation>,
    /// Addresses that this registry may refer to.
    pub registry_reach: Reachable,
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
    /// True to create an additional owner and to write its token to the data directory.
    pub recover_owner: bool,
    /// Directory of the log's archives. `None` means `archives` in the data directory.
    pub archives: Option<PathBuf>,
    /// Number of positions per partition of the log.
    pub partition_events: u64,
}

/// Directory of the log's archives: `option`, or else `archives` in the data directory.
pub fn archives_directory(data: &Path, option: Option<&Path>) -> PathBuf {
    option.map_or_else(|| data.join("archives"), Path::to_path_buf)
}

/// Listeners that use TLS if there is a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsFor {
    #[default]
    Both,
    Control,
    Runner,
}

impl Options {
    /// Options of a small server without TLS on free loopback ports, for tests and benchmarks.
    pub fn on_loopback(data: PathBuf, database: PgConnectOptions) -> Options {
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        Options {
            data,
            database,
            owner: None,
            connections: 4,
            control: free,
            runner: free,
            control_url: None,
            runner_url: None,
            certificate: None,
            tls_for: TlsFor::Both,
            behind_proxy: false,
            address_connections: None,
            registry: None,
            registry_reach: Reachable::Public,
            max_blob_bytes: 1 << 20,
            artifact_quota: u64::MAX,
            webhooks_reach: Reachable::All,
            uploads: Default::default(),
            state_quota: crate::state_versions::DEFAULT_QUOTA,
            recover_owner: false,
            archives: None,
            partition_events: event_log::partitions::SIZE,
        }
    }

    /// Number of files that database connections need: connections of the pool, of the table owner,
    /// and of rebuilds.
    pub(super) fn database_files(&self) -> u64 {
        2 * u64::from(self.connections) + 16
    }

    pub(super) fn control_tls(&self) -> Option<&Certificate> {
        match self.tls_for {
            TlsFor::Both | TlsFor::Control => self.certificate.as_ref(),
            TlsFor::Runner => None,
        }
    }

    pub(super) fn archives(&self) -> Archives {
        Archives::at(archives_directory(&self.data, self.archives.as_deref()))
    }

    pub(super) fn runner_tls(&self) -> Option<&Certificate> {
        match self.tls_for {
            TlsFor::Both | TlsFor::Runner => self.certificate.as_ref(),
            TlsFor::Control => None,
        }
    }

    pub(super) async fn bind_listeners(
        &self,
    ) -> Result<(BoundListener, BoundListener), ListenError> {
        // Detects an unusable certificate before any listener is open.
        self.certificate.as_ref().map(listen::acceptor).transpose()?;
        let (control, runner) = (self.control_tls().is_some(), self.runner_tls().is_some());
        let plain = self.behind_proxy;
        Ok((
            listen::open(self.control, "--control-listen", plain, control).await?,
            listen::open(self.runner, "--runner-listen", plain, runner).await?,
        ))
    }

    pub(super) fn config(
        &self,
        control: &BoundListener,
        runner: &BoundListener,
    ) -> Result<Config, StartError> {
        let trimmed = |url: &String| url.trim_end_matches('/').to_string();
        let control_url = self.control_url.as_ref().map(trimmed);
        let runner_url = self.runner_url.as_ref().map(trimmed);
        Ok(Config {
            data: self.data.clone(),
            server: server_name(&self.data)?,
            control_url: control_url.unwrap_or_else(|| control.url(self.control_tls().is_some())),
            runner_url: runner_url.unwrap_or_else(|| runner.url(self.runner_tls().is_some())),
            runner_ca: self.runner_tls().and_then(listen::private_root),
            plugin_publisher: OnceLock::new(),
            registry: self.registry.clone(),
            max_blob_bytes: self.max_blob_bytes,
            artifact_quota: self.artifact_quota,
            webhooks_reach: self.webhooks_reach,
            uploads: self.uploads,
            state_quota: self.state_quota,
            partition_events: self.partition_events,
        })
    }
}
