//! A private Postgres with its own socket.
use std::{
    env, fs,
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
};

use sqlx::{Connection, PgConnection};

use super::{Binaries, TestingError, io};

/// Settings of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// True if commits survive a crash of the machine. Off for tests, on for benchmarks.
    pub fsync: bool,
    /// More settings, `name=value`, as for `postgres -c`.
    pub more: Vec<String>,
}

/// A running Postgres.
#[derive(Debug, Clone)]
pub struct Cluster {
    binaries: Binaries,
    directory: PathBuf,
}

impl Cluster {
    /// Starts the cluster in a directory, or finds it running. Several processes may call this
    /// concurrently.
    ///
    /// # Errors
    /// [`TestingError`].
    pub async fn start(directory: &Path, settings: &Settings) -> Result<Cluster, TestingError> {
        let binaries = Binaries::find()?;
        binaries.make_directory(directory)?;
        let cluster = Cluster { binaries, directory: directory.to_owned() };
        let lock = cluster.lock().await?;
        if !cluster.answers().await {
            let cluster = cluster.clone();
            let settings = settings.clone();
            let started = tokio::task::spawn_blocking(move || cluster.launch(&settings));
            started.await.map_err(|error| io("starting PostgreSQL")(error.into()))??;
        }
        drop(lock);
        Ok(cluster)
    }

    /// Locks the shared parts of the cluster. Dropping the file releases the lock.
    pub(super) async fn lock(&self) -> Result<File, TestingError> {
        let path = self.directory.join("lock");
        let what = path.display().to_string();
        let file = File::options().create(true).append(true).open(&path).map_err(io(&what))?;
        // On a blocking thread: the holder of the lock may need this thread to release it.
        let locked = tokio::task::spawn_blocking(move || file.lock().map(|()| file));
        let locked = locked.await.map_err(|error| io(&what)(error.into()))?;
        locked.map_err(io(what))
    }

    async fn answers(&self) -> bool {
        if !self.data().join("postmaster.pid").exists() {
            return false;
        }
        match PgConnection::connect(&self.url("postgres")).await {
            Ok(connection) => connection.close().await.is_ok(),
            Err(_) => false,
        }
    }

    fn launch(&self, settings: &Settings) -> Result<(), TestingError> {
        if !self.data().join("PG_VERSION").exists() {
            let mut initdb = self.binaries.command("initdb");
            initdb.arg("-D").arg(self.data()).args(["-U", "stead", "-A", "trust", "-E", "UTF8"]);
            initdb.args(["--locale=C", "--no-instructions", "--no-sync"]);
            Binaries::run(initdb)?;
        }
        let onoff = if settings.fsync { "on" } else { "off" };
        let mut options = format!("-c listen_addresses='' -k {}", self.directory.display());
        let mut with = |setting: &str| options.push_str(&format!(" -c {setting}"));
        with(&format!("fsync={onoff}"));
        with(&format!("full_page_writes={onoff}"));
        with("max_connections=400");
        with("shared_buffers=256MB");
        with("autovacuum_naptime=10s");
        settings.more.iter().for_each(|setting| with(setting));
        let mut start = self.binaries.command("pg_ctl");
        start
            .arg("start")
            .arg("-D")
            .arg(self.data())
            .args(["-w", "-s", "-t", "60", "-o", &options]);
        start.arg("-l").arg(self.directory.join("log"));
        // Not captured: the server would inherit the pipe and keep it open while it runs.
        start.stdout(Stdio::null()).stderr(Stdio::null());
        let status = start.status().map_err(io("pg_ctl"))?;
        if status.success() {
            return Ok(());
        }
        let output = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        Err(TestingError::Failed { program: "pg_ctl start".into(), output })
    }

    /// Stops the cluster immediately. Data that was not flushed is lost, which tests of recovery
    /// need.
    ///
    /// # Errors
    /// [`TestingError`].
    pub fn stop(&self) -> Result<(), TestingError> {
        let mut stop = self.binaries.command("pg_ctl");
        stop.arg("stop").arg("-D").arg(self.data()).args(["-m", "immediate", "-s"]);
        Binaries::run(stop).map(drop)
    }

    /// Stops the cluster and removes its directory.
    ///
    /// # Errors
    /// [`TestingError`].
    pub fn remove(self) -> Result<(), TestingError> {
        self.stop()?;
        fs::remove_dir_all(&self.directory).map_err(io(self.directory.display().to_string()))
    }

    /// URL of a database.
    pub fn url(&self, database: &str) -> String {
        let mut host = String::new();
        for byte in self.directory.to_string_lossy().bytes() {
            if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
                host.push(char::from(byte));
            } else {
                host.push_str(&format!("%{byte:02X}"));
            }
        }
        format!("postgresql://stead@{host}/{database}")
    }

    /// Directory of the socket.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Programs of the cluster.
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// Process id of the postmaster; `None` if it does not run.
    pub fn pid(&self) -> Option<u32> {
        let lock = fs::read_to_string(self.data().join("postmaster.pid")).ok()?;
        lock.lines().next()?.parse().ok()
    }

    fn data(&self) -> PathBuf {
        self.directory.join("data")
    }
}

/// Directory of the cluster that this checkout's tests share. The path of a socket must be short.
pub fn shared_directory() -> PathBuf {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
    let hash = hex::encode(&proof::sha256(checkout.to_string_lossy().as_bytes())[..4]);
    env::temp_dir().join(format!("stead-test-{hash}-{}", nix::unistd::geteuid()))
}

/// Stops and removes the cluster that this checkout's tests share, if it runs.
///
/// # Errors
/// [`TestingError`].
pub fn stop_shared() -> Result<(), TestingError> {
    let directory = shared_directory();
    if !directory.join("data/postmaster.pid").exists() {
        return Ok(());
    }
    Cluster { binaries: Binaries::find()?, directory }.remove()
}
