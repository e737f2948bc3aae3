//! Lifecycle of one server.
//!
//! ```text
//! lock ─▶ bind listeners ─▶ keys ─▶ log ─▶ principals ─▶ first owner ─▶ loops ─▶ serve
//! stop ─▶ long polls and streams return ─▶ listeners close ─▶ loops end ─▶ connections close
//! ```
mod database;
mod loops;
mod options;
mod owner;
mod ready;
mod supervise;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::{path::PathBuf, sync::Arc, time::Duration};

use event_log::LogError;
use projections::{Projections, RebuildError};
use tokio::{task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use self::{
    options::{Options, TlsFor, archives_directory},
    owner::{PrepareError, prepare, raise_epoch},
    ready::Ready,
};
use crate::{
    auth::{self, Assertions, BootstrapError, PrincipalCache, Tokens},
    clock::{Clock, system_clock},
    dispatch::{Dispatch, Timing},
    execute::Engine,
    ids,
    keys::{KeyError, Keys, wrapping},
    listen::{self, BoundListener, Limits, ListenError},
    logs::LogStore,
    metrics::Metrics,
    problem::Problem,
    registry::{ArtifactError, Manifests, Registry},
    router,
    state::{App, Inner},
    webhooks::Sender,
    write_behind,
};

/// Maximum time that a shutdown waits for the background loops to end.
const LOOPS_TIMEOUT: Duration = Duration::from_secs(5);

pub struct Server {
    /// Shared state of the handlers and loops.
    pub app: App,
    /// Addresses and login instructions.
    pub ready: Ready,
    listeners: JoinSet<()>,
    loops: JoinSet<()>,
}

/// Reasons why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Keys(#[from] KeyError),
    #[error(transparent)]
    Registry(#[from] ArtifactError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("cannot access the database: {0}; check that it runs and that its URL is correct")]
    Database(#[from] sqlx::Error),
    #[error("cannot update a projection: {0}")]
    Views(#[from] RebuildError),
    #[error("cannot create the first owner: {0}")]
    Owner(#[from] BootstrapError),
    #[error("cannot load the server's state: {}", .0.detail)]
    Loops(Box<Problem>),
    #[error("cannot access {path}: {reason}")]
    File { path: String, reason: std::io::Error },
}

impl Server {
    /// Starts the server. The caller holds the data directory's lock.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(options: Options) -> Result<Server, StartError> {
        Server::start_with(options, system_clock()).await
    }

    async fn start_with(options: Options, clock: Clock) -> Result<Server, StartError> {
        // Binds the listeners first, because a port in use is a common error and is cheap to
        // detect.
        let (control, runner) = options.bind_listeners().await?;
        let keys = Keys::open(&options.data.join("keys"), clock())?;
        let ring = wrapping::load_or_create(&options.data.join("keys"), clock())?;
        let vendor = options.registry.clone().map(|location| (location, options.registry_reach));
        let registry = Registry::open(&options.data, options.max_blob_bytes, vendor)?;
        let pool = database::connect(&options).await?;
        let log = database::open_log(&options, &pool, ring, &clock).await?;
        let (principals, tail) = (PrincipalCache::default(), log.tail());
        principals.load(&log, &pool).await?;
        let owner_pool = database::prepare_projections(&options, &log).await?;
        let views = Projections::start(&log).await?;
        let owner = auth::create_first_owner(&log, &principals, &options.data, clock()).await?;
        if owner.is_none() && options.recover_owner {
            auth::create_another_owner(&log, &options.data, clock()).await?;
        }
        let config = options.config(&control, &runner)?;
        // The directory may be mounted read-only. `stead keys list` then shows no verifier keys.
        if let Err(error) = keys.record_log(log.log_id()) {
            warn!(error = %error, "Cannot record the id of the log in the directory of the keys");
        }
        let tokens = Tokens::new(&keys.current(), log.log_id());
        let ready = Ready::of(&config, &keys, &log, owner);
        let timing = Timing::default();
        let dispatch = Dispatch::new(config.server.clone(), timing, Arc::clone(&clock));
        let logs = LogStore::new(pool.clone());
        let (grants, grant_queue) = write_behind::channel();
        let (responses, response_queue) = write_behind::channel();
        let app = App::new(Inner {
            pool,
            owner: owner_pool,
            engine: Engine::new(log, Arc::clone(&clock)),
            configs: Default::default(),
            keys,
            projections: views,
            principals,
            tokens,
            assertions: Assertions::default(),
            login_codes: Default::default(),
            recent_changes: Default::default(),
            dispatch,
            webhook_wakeup: Default::default(),
            webhook_sender: Sender::new(options.webhooks_reach)
                .map_err(Box::new)
                .map_err(StartError::Loops)?,
            grants,
            responses,
            logs,
            registry,
            manifests: Manifests::default(),
            config,
            metrics: Metrics::default(),
            tasks: Default::default(),
            clock,
            doctor_permit: Arc::new(tokio::sync::Semaphore::new(1)),
            state_uploads: Default::default(),
            as_of_permits: Arc::new(tokio::sync::Semaphore::new(crate::state::MAX_AS_OF_QUERIES)),
            changed_installs: Default::default(),
            stopping: CancellationToken::new(),
        });
        let mut loops = JoinSet::new();
        let filled = loops::start(&app, &mut loops, (tail, grant_queue, response_queue)).await;
        filled.map_err(|problem| StartError::Loops(Box::new(problem)))?;
        // The first owner was just appended and must be known before the first request.
        app.principals.wait_for_position(app.log().position()).await;
        let listeners = serve(&app, &options, control, runner)?;
        info!(control = %ready.control, runner = %ready.runner, "Accepting connections");
        Ok(Server { app, ready, listeners, loops })
    }

    /// Creates a one-time code that logs in the owner whose token is in the data directory. `None` if
    /// the directory has no valid token, or if the URL of the Control API is not on this machine: the
    /// code would be rejected.
    pub async fn login_code(&self) -> Option<String> {
        if !crate::ui::has_loopback_url(&self.app) {
            return None;
        }
        let token = std::fs::read_to_string(self.ready.owner_token_file.as_ref()?).ok()?;
        let identity = crate::extract::identify(&self.app, token.trim()).await.ok()?;
        Some(self.app.login_codes.issue(identity, self.app.now()))
    }

    /// Waits until a background task has failed permanently, after which the process should end.
    /// Returns the name of the task.
    pub async fn failed(&self) -> &'static str {
        self.app.tasks.failed().await
    }

    /// Stops the server. Long polls return, and open requests and loops get a limited time to end.
    pub async fn stop(mut self) {
        self.app.stopping.cancel();
        while self.listeners.join_next().await.is_some() {}
        let ended =
            timeout(LOOPS_TIMEOUT, async { while self.loops.join_next().await.is_some() {} });
        if ended.await.is_err() {
            warn!(
                "Background loops did not end in time; their consumers continue at the last stored positions"
            );
            self.loops.shutdown().await;
        }
        if let Some(owner) = &self.app.owner {
            owner.close().await;
        }
        self.app.pool.close().await;
        info!("Server stopped");
    }
}

fn serve(
    app: &App,
    options: &Options,
    control: BoundListener,
    runner: BoundListener,
) -> Result<JoinSet<()>, ListenError> {
    let mut listeners = JoinSet::new();
    let shares = listen::Shares::of(listen::raise_limit(), options.database_files());
    info!(
        control = shares.control,
        runner = shares.runner,
        "Limited connections of each listener by the limit of open files"
    );
    for (name, bound, routes, tls, connections) in [
        ("control", control, router::control(app), options.control_tls(), shares.control),
        ("runner", runner, router::runner(app), options.runner_tls(), shares.runner),
    ] {
        let tls = tls.map(listen::acceptor).transpose()?;
        let of_address = options.address_connections;
        let limits = Limits { connections, per_address: of_address, ..Limits::default() };
        let stop = app.stopping.clone();
        listeners.spawn(listen::serve((name, bound.listener), tls, routes, limits, stop));
    }
    Ok(listeners)
}

/// Name of this server, unique among the servers of one database. Reads the file `server.id` in the
/// data directory, or creates it.
fn server_name(data: &std::path::Path) -> Result<String, StartError> {
    let path: PathBuf = data.join("server.id");
    let at = |reason| StartError::File { path: path.display().to_string(), reason };
    match std::fs::read_to_string(&path) {
        Ok(name) if !name.trim().is_empty() => Ok(name.trim().to_string()),
        Ok(_) => new_name(&path).map_err(at),
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => new_name(&path).map_err(at),
        Err(why) => Err(at(why)),
    }
}

fn new_name(path: &std::path::Path) -> std::io::Result<String> {
    let name = format!("server-{}", ids::new_ulid());
    let draft = path.with_extension("new");
    std::fs::write(&draft, &name)?;
    std::fs::rename(draft, path)?;
    Ok(name)
}
