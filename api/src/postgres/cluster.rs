//! Files of the cluster, and the database in it.
use std::{
    fs,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use sqlx::{Connection as _, PgConnection, postgres::PgConnectOptions};

use super::{Account, Binaries, EmbeddedError, about, part};

/// Superuser of the cluster, which only the supervisor uses.
const SUPERUSER: &str = "postgres";
/// Owner of the tables, for migrations and rebuilds.
pub(super) const OWNER: &str = "stead_owner";
/// Role of the server, with limited privileges.
pub(super) const APP: &str = "stead_app";
/// Name of the database.
const DATABASE: &str = "stead";
/// Maximum length of the socket directory. A socket path may have 107 bytes, including
/// `/.s.PGSQL.5432`.
const LONGEST_SOCKET_DIRECTORY: usize = 90;

/// Existing cluster with its owner.
pub(super) struct Cluster {
    pub(super) directory: PathBuf,
    pub(super) log: PathBuf,
    pub(super) sockets: PathBuf,
    /// Marker that exists while the files of `initdb` may not be on the disk.
    unsynced: PathBuf,
    pub(super) binaries: Binaries,
    pub(super) account: Account,
}

impl Cluster {
    /// Opens the cluster of a data directory. Creates it atomically if there is none.
    pub(super) async fn open(
        data: &Path,
        binaries: Binaries,
        account: Account,
    ) -> Result<Cluster, EmbeddedError> {
        let data = fs::canonicalize(data).map_err(about(data.display()))?;
        let (directory, log) = (part(&data, "postgres"), part(&data, "postgres.log"));
        let sockets = socket_directory(&data, &account)?;
        let unsynced = part(&data, "postgres.unsynced");
        let cluster = Cluster { directory, log, sockets, unsynced, binaries, account };
        if cluster.directory.join("PG_VERSION").exists() {
            cluster.check_version()?;
        } else {
            cluster.make(&part(&data, "postgres.new")).await?;
        }
        Ok(cluster)
    }

    fn check_version(&self) -> Result<(), EmbeddedError> {
        let path = self.directory.join("PG_VERSION");
        let text = fs::read_to_string(&path).map_err(about(path.display()))?;
        let (made_by, found) = (text.trim().parse().unwrap_or(0), self.binaries.major);
        if made_by == found {
            return Ok(());
        }
        let binary = self.binaries.postgres.display().to_string();
        let data = self.directory.display().to_string();
        Err(EmbeddedError::OtherVersion { data, made_by, binary, found })
    }

    async fn make(&self, draft: &Path) -> Result<(), EmbeddedError> {
        if draft.exists() {
            if draft.join("global/pg_control").exists() && !self.unsynced.exists() {
                // The cluster was synced and used, and only its rename was lost in a power failure.
                return self.name(draft);
            }
            // An earlier start was killed during the creation.
            fs::remove_dir_all(draft).map_err(about(draft.display()))?;
        }
        private_directory(draft, &self.account)?;
        let mut initdb = self.account.command(&self.binaries.initdb);
        initdb.arg("--pgdata").arg(draft).args(["--username", SUPERUSER, "--encoding", "UTF8"]);
        // The private socket directory controls access, so local connections need no password.
        // Network connections are rejected.
        initdb.args(["--no-locale", "--auth-local", "trust", "--auth-host", "reject"]);
        // The files are synced while Postgres starts. The marker ensures this even after a crash.
        initdb.arg("--no-sync");
        fs::write(&self.unsynced, "").map_err(about(self.unsynced.display()))?;
        sync_parent(&self.unsynced)?;
        let done = initdb.output().await.map_err(about(self.binaries.initdb.display()))?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr).trim().to_string();
            return Err(EmbeddedError::Initdb { said });
        }
        self.name(draft)
    }

    fn name(&self, draft: &Path) -> Result<(), EmbeddedError> {
        fs::rename(draft, &self.directory).map_err(about(self.directory.display()))?;
        sync_parent(&self.directory)
    }

    /// Starts a sync of the files of `initdb`. Returns `None` if they are already on the disk. Safe
    /// while Postgres runs.
    pub(super) fn sync(&self) -> Result<Option<PendingSync>, EmbeddedError> {
        if !self.unsynced.exists() {
            return Ok(None);
        }
        let mut initdb = self.account.command(&self.binaries.initdb);
        initdb.arg("--sync-only").arg("--pgdata").arg(&self.directory);
        initdb.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let child = initdb.spawn().map_err(about(self.binaries.initdb.display()))?;
        Ok(Some(PendingSync { child, marker: self.unsynced.clone() }))
    }

    /// Creates the roles and the database, unless they exist.
    pub(super) async fn set_up(&self) -> Result<(), EmbeddedError> {
        let root = self.connect_as(SUPERUSER).database("postgres");
        let mut root = PgConnection::connect_with(&root).await?;
        let has = "select exists (select from pg_roles where rolname = $1)";
        for role in [OWNER, APP] {
            if !sqlx::query_scalar::<_, bool>(has).bind(role).fetch_one(&mut root).await? {
                sqlx::query(&format!("create role {role} login")).execute(&mut root).await?;
            }
        }
        let has = "select exists (select from pg_database where datname = $1)";
        if !sqlx::query_scalar::<_, bool>(has).bind(DATABASE).fetch_one(&mut root).await? {
            let make = format!("create database {DATABASE} owner {OWNER}");
            sqlx::query(&make).execute(&mut root).await?;
        }
        Ok(root.close().await?)
    }

    /// Connection options for one of the roles.
    pub(super) fn connect_as(&self, role: &str) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .socket(&self.sockets)
            .port(5432)
            .username(role)
            .database(DATABASE)
            .application_name("stead")
    }

    /// Connection URL for one of the roles.
    pub(super) fn url(&self, role: &str) -> String {
        let host = self.sockets.display().to_string().replace('%', "%25").replace('/', "%2F");
        format!("postgres://{role}@{host}:5432/{DATABASE}")
    }

    /// Returns true if Postgres accepts connections.
    pub(super) async fn answers(&self) -> bool {
        let root = self.connect_as(SUPERUSER).database("postgres");
        match PgConnection::connect_with(&root).await {
            Ok(connection) => connection.close().await.is_ok(),
            Err(_) => false,
        }
    }
}

/// Sync of the cluster's files in progress.
pub(super) struct PendingSync {
    child: tokio::process::Child,
    marker: PathBuf,
}

impl PendingSync {
    pub(super) async fn done(mut self) -> Result<(), EmbeddedError> {
        let ended = self.child.wait().await.map_err(about("initdb --sync-only"))?;
        if !ended.success() {
            let said = format!("initdb --sync-only: {ended}");
            return Err(EmbeddedError::Initdb { said });
        }
        // Also syncs the directory above, which contains the cluster's name and which `initdb` does
        // not sync.
        sync_parent(&self.marker)?;
        fs::remove_file(&self.marker).map_err(about(self.marker.display()))
    }
}

/// Syncs the directory of a path. Until then a new file or a rename may be lost in a power failure.
fn sync_parent(path: &Path) -> Result<(), EmbeddedError> {
    let Some(above) = path.parent() else { return Ok(()) };
    let synced = fs::File::open(above).and_then(|directory| directory.sync_all());
    synced.map_err(about(above.display()))
}

/// Returns `DATA/run`, or a directory with a shorter path if `DATA/run` is too long for a socket.
fn socket_directory(data: &Path, account: &Account) -> Result<PathBuf, EmbeddedError> {
    let near = part(data, "run");
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
/// user.
fn private_directory(path: &Path, account: &Account) -> Result<(), EmbeddedError> {
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
                "it is owned by another user; run stead as that user if the data directory is theirs"
            } else {
                "it exists and is not a private directory of this user; remove it, or choose another directory with --data"
            };
            Err(about(path.display())(std::io::Error::other(why)))
        }
        Err(why) => Err(about(path.display())(why)),
    }
}
