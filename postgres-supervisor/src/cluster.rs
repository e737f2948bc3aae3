//! Files of the cluster, and connections to it.
use std::{
    fs,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use sqlx::{Connection as _, PgConnection, postgres::PgConnectOptions};

use crate::{Account, Binaries, Error, about};

/// Maximum length of the socket directory. A socket path may have 107 bytes, including
/// `/.s.PGSQL.5432`.
const LONGEST_SOCKET_DIRECTORY: usize = 90;

#[derive(Debug, Clone)]
pub struct Settings {
    /// Superuser that `initdb` creates.
    pub superuser: &'static str,
    /// Port on loopback where connections need no password. `None` opens no port.
    pub port: Option<u16>,
    /// More settings, `name=value`, as for `postgres -c`.
    pub more: Vec<String>,
}

/// Existing cluster with its owner.
#[derive(Debug)]
pub struct Cluster {
    /// Data directory, which contains the directory of the cluster.
    pub data: PathBuf,
    pub(crate) directory: PathBuf,
    pub(crate) log: PathBuf,
    /// Directory of the socket.
    pub sockets: PathBuf,
    /// Marker that exists while the files of `initdb` may not be on the disk.
    unsynced: PathBuf,
    /// Binaries of the version that created the cluster.
    pub binaries: Binaries,
    pub(crate) account: Account,
    pub(crate) settings: Settings,
}

impl Cluster {
    /// Opens the cluster of a data directory. Creates it atomically if there is none.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn open(data: &Path, account: Account, settings: Settings) -> Result<Cluster, Error> {
        // The search waits for programs that print their versions.
        let search = tokio::task::spawn_blocking(Binaries::find).await;
        let binaries = search.map_err(std::io::Error::other).map_err(about("PATH"))??;
        let data = fs::canonicalize(data).map_err(about(data.display()))?;
        let (directory, log) = (data.join("postgres"), data.join("postgres.log"));
        let sockets = socket_directory(&data, &account)?;
        let unsynced = data.join("postgres.unsynced");
        let cluster =
            Cluster { data, directory, log, sockets, unsynced, binaries, account, settings };
        if Cluster::is_in(&cluster.data) {
            cluster.check_version()?;
        } else {
            cluster.account.can_enter(&cluster.data)?;
            cluster.make(&cluster.data.join("postgres.new")).await?;
        }
        Ok(cluster)
    }

    /// Returns true if the data directory contains a cluster.
    pub fn is_in(data: &Path) -> bool {
        data.join("postgres/PG_VERSION").exists()
    }

    fn check_version(&self) -> Result<(), Error> {
        let path = self.directory.join("PG_VERSION");
        let text = fs::read_to_string(&path).map_err(about(path.display()))?;
        let (made_by, found) = (text.trim().parse().unwrap_or(0), self.binaries.major);
        if made_by == found {
            return Ok(());
        }
        let binary = self.binaries.program("postgres").display().to_string();
        let data = self.directory.display().to_string();
        Err(Error::OtherVersion { data, made_by, binary, found })
    }

    async fn make(&self, draft: &Path) -> Result<(), Error> {
        if draft.exists() {
            if draft.join("global/pg_control").exists() && !self.unsynced.exists() {
                // The cluster was synced and used, and only its rename was lost in a power failure.
                return self.name(draft);
            }
            // An earlier start was killed during the creation.
            fs::remove_dir_all(draft).map_err(about(draft.display()))?;
        }
        private_directory(draft, &self.account)?;
        let mut initdb = self.account.command(&self.binaries.program("initdb"));
        initdb.arg("--pgdata").arg(draft);
        initdb.args(["--username", self.settings.superuser, "--encoding", "UTF8", "--no-locale"]);
        // The private socket directory controls access, so local connections need no password.
        let network = if self.settings.port.is_some() { "trust" } else { "reject" };
        initdb.args(["--auth-local", "trust", "--auth-host", network]);
        // The files are synced while Postgres starts. The marker ensures this even after a crash.
        initdb.arg("--no-sync");
        fs::write(&self.unsynced, "").map_err(about(self.unsynced.display()))?;
        sync_parent(&self.unsynced)?;
        let done = initdb.output().await.map_err(about("initdb"))?;
        if !done.status.success() {
            let output = String::from_utf8_lossy(&done.stderr).trim().to_string();
            return Err(Error::Initdb { output });
        }
        self.name(draft)
    }

    fn name(&self, draft: &Path) -> Result<(), Error> {
        fs::rename(draft, &self.directory).map_err(about(self.directory.display()))?;
        sync_parent(&self.directory)
    }

    /// Starts a sync of the files of `initdb`. Returns `None` if the files are already on the disk.
    /// Safe while Postgres runs.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sync(&self) -> Result<Option<PendingSync>, Error> {
        if !self.unsynced.exists() {
            return Ok(None);
        }
        let mut initdb = self.account.command(&self.binaries.program("initdb"));
        initdb.arg("--sync-only").arg("--pgdata").arg(&self.directory);
        initdb.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let child = initdb.spawn().map_err(about("initdb --sync-only"))?;
        Ok(Some(PendingSync { child, marker: self.unsynced.clone() }))
    }

    pub fn connect_as(&self, role: &str, database: &str) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .socket(&self.sockets)
            .port(self.port())
            .username(role)
            .database(database)
            .application_name("stead")
    }

    pub fn url(&self, role: &str, database: &str) -> String {
        let mut host = String::new();
        for byte in self.sockets.to_string_lossy().bytes() {
            match byte {
                b'-' | b'_' | b'.' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                    host.push(char::from(byte));
                }
                0..=u8::MAX => host.push_str(&format!("%{byte:02X}")),
            }
        }
        format!("postgres://{role}@{host}:{}/{database}", self.port())
    }

    /// Port in the name of the socket.
    pub(crate) fn port(&self) -> u16 {
        self.settings.port.unwrap_or(5432)
    }

    /// Returns true if Postgres accepts connections.
    pub(crate) async fn answers(&self) -> bool {
        let root = self.connect_as(self.settings.superuser, "postgres");
        match PgConnection::connect_with(&root).await {
            Ok(connection) => connection.close().await.is_ok(),
            Err(_) => false,
        }
    }
}

/// Sync of the cluster's files in progress.
pub struct PendingSync {
    child: tokio::process::Child,
    marker: PathBuf,
}

impl PendingSync {
    /// Waits until the files are on the disk.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn done(mut self) -> Result<(), Error> {
        let ended = self.child.wait().await.map_err(about("initdb --sync-only"))?;
        if !ended.success() {
            return Err(Error::Initdb { output: format!("initdb --sync-only: {ended}") });
        }
        // Also syncs the directory above, which contains the cluster's name and which `initdb` does
        // not sync.
        sync_parent(&self.marker)?;
        fs::remove_file(&self.marker).map_err(about(self.marker.display()))
    }
}

/// Syncs the directory of a path. Until then a new file or a rename may be lost in a power failure.
fn sync_parent(path: &Path) -> Result<(), Error> {
    let Some(above) = path.parent() else { return Ok(()) };
    let synced = fs::File::open(above).and_then(|directory| directory.sync_all());
    synced.map_err(about(above.display()))
}

/// Returns `DATA/run`, or a directory with a shorter path if `DATA/run` is too long for a socket.
fn socket_directory(data: &Path, account: &Account) -> Result<PathBuf, Error> {
    let near = data.join("run");
    let sockets = if near.as_os_str().len() <= LONGEST_SOCKET_DIRECTORY {
        near
    } else {
        use sha2::{Digest as _, Sha256};
        let name = hex::encode(&Sha256::digest(data.as_os_str().as_encoded_bytes())[..8]);
        std::env::temp_dir().join(format!("stead-{name}"))
    };
    private_directory(&sockets, account)?;
    Ok(sockets)
}

/// Creates a directory that only this user can enter. Rejects an existing directory of another
/// user, or with access for other users.
fn private_directory(path: &Path, account: &Account) -> Result<(), Error> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => account.own(path),
        Err(why) if why.kind() == std::io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(path).map_err(about(path.display()))?;
            let expected = match account {
                Account::Current => nix::unistd::geteuid(),
                Account::Other { uid, .. } => *uid,
            };
            let ours = found.is_dir() && found.mode() & 0o077 == 0;
            if ours && found.uid() == expected.as_raw() {
                return Ok(());
            }
            let root = nix::unistd::geteuid().is_root() && found.uid() == 0;
            if ours && root {
                // An earlier start was killed before it changed the owner.
                return account.own(path);
            }
            let why = if ours {
                "it belongs to another user; run stead as the owner of the data directory"
            } else {
                "it exists and is not a private directory of this user; remove it, or choose another directory with --data"
            };
            Err(about(path.display())(std::io::Error::other(why)))
        }
        Err(why) => Err(about(path.display())(why)),
    }
}
