//! The files of the cluster and the database inside it.
use std::{
    fs,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use sqlx::{Connection as _, PgConnection, postgres::PgConnectOptions};

use super::{Account, Binaries, EmbeddedError, about, part};

/// The cluster's superuser; only the supervisor connects as it.
const SUPERUSER: &str = "postgres";
/// Owns the tables: migrations and rebuilds.
pub(super) const OWNER: &str = "stead_owner";
/// Inserts and selects: the server.
pub(super) const APP: &str = "stead_app";
/// The one database.
const DATABASE: &str = "stead";
/// A socket's path may have 107 bytes; `/.s.PGSQL.5432` comes behind the directory.
const LONGEST_SOCKET_DIRECTORY: usize = 90;

/// A cluster on disk, made and owned.
pub(super) struct Cluster {
    pub(super) directory: PathBuf,
    pub(super) log: PathBuf,
    pub(super) sockets: PathBuf,
    /// There while the files that `initdb` wrote may not be on the disk.
    unsynced: PathBuf,
    pub(super) binaries: Binaries,
    pub(super) account: Account,
}

impl Cluster {
    /// The cluster of a data directory; made when there is none, whole or not at all.
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
                // A cluster that was brought to the disk and worked in: only its new name was lost with the power.
                return self.name(draft);
            }
            // A start that was killed in the middle of this.
            fs::remove_dir_all(draft).map_err(about(draft.display()))?;
        }
        private_directory(draft, &self.account)?;
        let mut initdb = self.account.command(&self.binaries.initdb);
        initdb.arg("--pgdata").arg(draft).args(["--username", SUPERUSER, "--encoding", "UTF8"]);
        // Only who can enter the private socket directory gets as far as being asked, and nobody comes
        // over the network.
        initdb.args(["--no-locale", "--auth-local", "trust", "--auth-host", "reject"]);
        // Made durable while Postgres starts; the marker makes sure of it, whatever happens meanwhile.
        initdb.arg("--no-sync");
        fs::write(&self.unsynced, "").map_err(about(self.unsynced.display()))?;
        keep_names(&self.unsynced)?;
        let done = initdb.output().await.map_err(about(self.binaries.initdb.display()))?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr).trim().to_string();
            return Err(EmbeddedError::Initdb { said });
        }
        self.name(draft)
    }

    fn name(&self, draft: &Path) -> Result<(), EmbeddedError> {
        fs::rename(draft, &self.directory).map_err(about(self.directory.display()))?;
        keep_names(&self.directory)
    }

    /// Bring what `initdb` wrote to the disk; `None` when it is there. Harmless beside a running Postgres.
    pub(super) fn sync(&self) -> Result<Option<Sync>, EmbeddedError> {
        if !self.unsynced.exists() {
            return Ok(None);
        }
        let mut initdb = self.account.command(&self.binaries.initdb);
        initdb.arg("--sync-only").arg("--pgdata").arg(&self.directory);
        initdb.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let child = initdb.spawn().map_err(about(self.binaries.initdb.display()))?;
        Ok(Some(Sync { child, marker: self.unsynced.clone() }))
    }

    /// The roles and the database, when they are not there yet.
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

    /// How to connect as one of the roles.
    pub(super) fn connect_as(&self, role: &str) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .socket(&self.sockets)
            .port(5432)
            .username(role)
            .database(DATABASE)
            .application_name("stead")
    }

    /// The same as a URL.
    pub(super) fn url(&self, role: &str) -> String {
        let host = self.sockets.display().to_string().replace('%', "%25").replace('/', "%2F");
        format!("postgres://{role}@{host}:5432/{DATABASE}")
    }

    /// Whether Postgres takes connections.
    pub(super) async fn answers(&self) -> bool {
        let root = self.connect_as(SUPERUSER).database("postgres");
        match PgConnection::connect_with(&root).await {
            Ok(connection) => connection.close().await.is_ok(),
            Err(_) => false,
        }
    }
}

/// Files on their way to the disk.
pub(super) struct Sync {
    child: tokio::process::Child,
    marker: PathBuf,
}

impl Sync {
    pub(super) async fn done(mut self) -> Result<(), EmbeddedError> {
        let ended = self.child.wait().await.map_err(about("initdb --sync-only"))?;
        if !ended.success() {
            let said = format!("initdb --sync-only: {ended}");
            return Err(EmbeddedError::Initdb { said });
        }
        // Its name too, which is in the directory above and which `initdb` knows nothing of.
        keep_names(&self.marker)?;
        fs::remove_file(&self.marker).map_err(about(self.marker.display()))
    }
}

/// Bring the names beside a path to the disk: a new file or a new name may be lost with the power until then.
fn keep_names(path: &Path) -> Result<(), EmbeddedError> {
    let Some(above) = path.parent() else { return Ok(()) };
    let synced = fs::File::open(above).and_then(|directory| directory.sync_all());
    synced.map_err(about(above.display()))
}

/// `DATA/run`, or a directory with a shorter name where that one would be too long for a socket.
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

/// A directory that only this account enters; one of the same name that is somebody else's is refused.
fn private_directory(path: &Path, account: &Account) -> Result<(), EmbeddedError> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => account.own(path),
        Err(why) if why.kind() == std::io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(path).map_err(about(path.display()))?;
            let expected = match account {
                Account::Ourselves => nix::unistd::geteuid(),
                Account::Other { uid, .. } => *uid,
            };
            let ours = found.is_dir() && found.mode() & 0o077 == 0;
            if ours && found.uid() == expected.as_raw() {
                return Ok(());
            }
            let root = nix::unistd::geteuid().is_root() && found.uid() == 0;
            if ours && root {
                // A start that was killed between making it and giving it away.
                return account.own(path);
            }
            let why = if ours {
                "is another user's: run stead as that user, if the data directory is theirs"
            } else {
                "exists and is not a private directory of ours"
            };
            Err(about(path.display())(std::io::Error::other(why)))
        }
        Err(why) => Err(about(path.display())(why)),
    }
}
