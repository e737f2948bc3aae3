//! A private Postgres that continues to run after the test, and that several processes can share.
use std::{
    env, fs,
    fs::File,
    ops::Deref,
    path::{Path, PathBuf},
    sync::Arc,
};

use postgres_supervisor::{Account, Postmaster, Settings};

use super::{TestingError, io};

const SUPERUSER: &str = "stead";

/// Settings of a cluster. Tests turn `fsync` off, and benchmarks turn it on. `more` has settings of
/// the form `name=value`.
pub fn settings(fsync: bool, more: &[&str]) -> Settings {
    let onoff = if fsync { "on" } else { "off" };
    let common: [&str; 5] = [
        &format!("fsync={onoff}"),
        &format!("full_page_writes={onoff}"),
        "max_connections=400",
        "shared_buffers=256MB",
        "autovacuum_naptime=10s",
    ];
    let more = common.iter().chain(more).map(ToString::to_string).collect();
    Settings { superuser: SUPERUSER, port: None, more }
}

/// A running Postgres.
#[derive(Debug, Clone)]
pub struct Cluster(Arc<postgres_supervisor::Cluster>);

impl Deref for Cluster {
    type Target = postgres_supervisor::Cluster;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Cluster {
    /// Starts the cluster in a directory, or finds it running. Several processes may call this
    /// concurrently.
    ///
    /// # Errors
    /// [`TestingError`].
    pub async fn start(directory: &Path, settings: Settings) -> Result<Cluster, TestingError> {
        fs::create_dir_all(directory).map_err(io(directory.display().to_string()))?;
        let lock = lock(directory).await?;
        let account = Account::choose()?;
        let cluster = postgres_supervisor::Cluster::open(directory, account, settings).await?;
        Postmaster::run(&cluster).await?;
        drop(lock);
        Ok(Cluster(Arc::new(cluster)))
    }

    /// Stops the cluster immediately, and blocks the thread until it has stopped. Data that was not
    /// flushed is lost, which tests of recovery need.
    ///
    /// # Errors
    /// [`TestingError`].
    pub fn stop(&self) -> Result<(), TestingError> {
        match Postmaster::find(self) {
            Some(mut running) => Ok(running.abort()?),
            None => Ok(()),
        }
    }

    /// Stops the cluster and removes its directory.
    ///
    /// # Errors
    /// [`TestingError`].
    pub fn remove(self) -> Result<(), TestingError> {
        self.stop()?;
        fs::remove_dir_all(&self.data).map_err(io(self.data.display().to_string()))
    }

    /// URL of a database.
    pub fn url(&self, database: &str) -> String {
        self.0.url(SUPERUSER, database)
    }

    /// Process id of the postmaster; `None` if it does not run.
    pub fn pid(&self) -> Option<u32> {
        u32::try_from(Postmaster::find(self)?.pid()).ok()
    }
}

/// Locks the cluster in a directory. Dropping the file releases the lock.
pub(super) async fn lock(directory: &Path) -> Result<File, TestingError> {
    let path = directory.join("lock");
    let what = path.display().to_string();
    let file = File::options().create(true).append(true).open(&path).map_err(io(&what))?;
    // A blocking thread waits, because the holder of the lock may need this thread to release it.
    let locked = tokio::task::spawn_blocking(move || file.lock().map(|()| file));
    let locked = locked.await.map_err(|error| io(&what)(error.into()))?;
    locked.map_err(io(what))
}

/// Directory of the cluster that this checkout's tests share. The path of a socket must be short.
pub fn shared_directory() -> PathBuf {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
    let hash = hex::encode(&proof::sha256(checkout.to_string_lossy().as_bytes())[..4]);
    env::temp_dir().join(format!("stead-test-{hash}-{}", nix::unistd::geteuid()))
}

/// Stops and removes the cluster that this checkout's tests share, if there is one.
///
/// # Errors
/// [`TestingError`].
pub async fn stop_shared() -> Result<(), TestingError> {
    let directory = shared_directory();
    if !postgres_supervisor::Cluster::is_in(&directory) {
        return Ok(());
    }
    let settings = settings(false, &[]);
    let account = Account::of(&directory)?;
    let cluster = postgres_supervisor::Cluster::open(&directory, account, settings).await?;
    Cluster(Arc::new(cluster)).remove()
}
