//! What a server is told at its start.
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use event_log::Archives;
use sqlx::postgres::PgConnectOptions;

use super::{StartError, server_name};
use crate::{
    listen::{self, Certificate, Door, ListenError},
    state::Config,
};

/// What a server is told at its start.
#[derive(Debug, Clone)]
pub struct Options {
    /// Keys, registry, owner token. Locked by the caller.
    pub data: PathBuf,
    /// The database, as the role that inserts and selects.
    pub database: PgConnectOptions,
    /// The same, as the role that owns the tables: rebuilds need it.
    pub owner: Option<PgConnectOptions>,
    /// The most connections to it.
    pub connections: u32,
    /// Where people call.
    pub control: SocketAddr,
    /// Where runners call.
    pub runner: SocketAddr,
    /// How people reach that, when it is not the same.
    pub control_url: Option<String>,
    /// How runners reach that, when it is not the same.
    pub runner_url: Option<String>,
    /// Speak TLS with this.
    pub certificate: Option<Certificate>,
    /// On which doors.
    pub tls_for: TlsFor,
    /// A proxy in front of us ends TLS.
    pub behind_proxy: bool,
    /// Most unauthenticated connections of one address to each listener. `None`: a sixteenth of all.
    pub address_connections: Option<usize>,
    /// The most bytes of one blob of an artifact.
    pub max_blob_bytes: u64,
    /// Most bytes that runners may upload for their reports.
    pub uploads: event_log::upload::Quota,
    /// Make one more owner and write their token into the data directory.
    pub recover_owner: bool,
    /// Where archives of the log are; where nobody says so, below the data directory.
    pub archives: Option<PathBuf>,
    /// How many positions a partition of the log has.
    pub partition_events: u64,
}

/// Where archives of the log are: where somebody said, else below the data directory.
pub fn archives_directory(data: &Path, said: Option<&Path>) -> PathBuf {
    said.map_or_else(|| data.join("archives"), Path::to_path_buf)
}

/// Which doors speak TLS when there is a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsFor {
    /// Both.
    #[default]
    Both,
    /// The people's.
    Control,
    /// The runners'.
    Runner,
}

impl Options {
    /// A small server without TLS on free ports of loopback, for tests and measurements.
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
            max_blob_bytes: 1 << 20,
            uploads: Default::default(),
            recover_owner: false,
            archives: None,
            partition_events: event_log::partitions::SIZE,
        }
    }

    /// Files that connections to the database take: the pool's, the table owner's, and those of rebuilds.
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

    pub(super) async fn open_doors(&self) -> Result<(Door, Door), ListenError> {
        // A certificate that cannot be used is found out before anything is open.
        self.certificate.as_ref().map(listen::acceptor).transpose()?;
        let (control, runner) = (self.control_tls().is_some(), self.runner_tls().is_some());
        let plain = self.behind_proxy;
        Ok((
            listen::open(self.control, "--control-listen", plain, control).await?,
            listen::open(self.runner, "--runner-listen", plain, runner).await?,
        ))
    }

    pub(super) fn config(&self, control: &Door, runner: &Door) -> Result<Config, StartError> {
        let trimmed = |url: &String| url.trim_end_matches('/').to_string();
        let control_url = self.control_url.as_ref().map(trimmed);
        let runner_url = self.runner_url.as_ref().map(trimmed);
        Ok(Config {
            data: self.data.clone(),
            server: server_name(&self.data)?,
            control_url: control_url.unwrap_or_else(|| control.url(self.control_tls().is_some())),
            runner_url: runner_url.unwrap_or_else(|| runner.url(self.runner_tls().is_some())),
            runner_ca: self.runner_tls().and_then(listen::private_root),
            max_blob_bytes: self.max_blob_bytes,
            uploads: self.uploads,
            partition_events: self.partition_events,
        })
    }
}
