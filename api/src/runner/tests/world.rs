//! Server without listeners for tests, and agents that call it.
use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    http::{HeaderMap, Method, Request, Response, StatusCode},
};
use domain::{
    actor::Actor,
    enrolment::Purpose,
    ids::{AppId, BuildId, ComponentId, InstallId, JobId, RunId, StepId},
    install::{Install, InstallCommand},
    job::{Job, JobClass, JobCommand, JobKind, Origin, Work},
};
use event_log::{EventLog, Meta, Options, StoredEvent, blob, testing::Database};
use projections::Projections;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tracing::instrument::WithSubscriber as _;
use ulid::Ulid;

use crate::{
    auth::{Assertions, PrincipalCache, Tokens},
    clock::system_clock,
    dispatch::{self, Dispatch, Timing},
    execute::{Call, Engine},
    keys::{Keys, wrapping},
    logs::LogStore,
    metrics::Metrics,
    reactions::{liveness, principals},
    registry::{Manifests, Registry},
    router,
    state::{App, Config, Inner},
    usecases::enrolments,
    write_behind::{self, grants, idempotent_responses},
};

mod agent;

pub(super) use agent::{Agent, install_keys};

/// Server with its database.
pub(super) struct World {
    pub app: App,
    pub database: Database,
    router: Router,
    data: Arc<tempfile::TempDir>,
    timing: Timing,
    loops: JoinSet<()>,
}

pub(super) struct TestResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub bytes: Bytes,
}

impl TestResponse {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or(Value::Null)
    }

    #[track_caller]
    pub(super) fn ok(&self) -> Value {
        let text = String::from_utf8_lossy(&self.bytes);
        assert!(self.status.is_success(), "{}: {text}", self.status);
        self.json()
    }

    #[track_caller]
    pub(super) fn rejected(&self, status: u16, code: &str) -> Value {
        let (json, text) = (self.json(), String::from_utf8_lossy(&self.bytes));
        assert_eq!(self.status.as_u16(), status, "{text}");
        assert_eq!(json["code"], code, "{text}");
        json
    }
}

impl World {
    pub(super) async fn new() -> World {
        World::with(Timing::default()).await
    }

    pub(super) async fn with(timing: Timing) -> World {
        let database = event_log::testing::fresh_database().await.unwrap();
        let data = Arc::new(tempfile::tempdir().unwrap());
        World::start(database, data, timing, "here").await
    }

    /// Restarts the server with the same database and keys.
    pub(super) async fn restart(self) -> World {
        let (database, data, timing) = (self.database.clone(), self.data.clone(), self.timing);
        self.app.stopping.cancel();
        drop(self);
        World::start(database, data, timing, "here").await
    }

    /// Starts another server on the same database, with the same keys.
    pub(super) async fn second_server(&self) -> World {
        self.second_server_with(self.timing).await
    }

    pub(super) async fn second_server_with(&self, timing: Timing) -> World {
        World::start(self.database.clone(), self.data.clone(), timing, "there").await
    }

    async fn start(
        database: Database,
        data: Arc<tempfile::TempDir>,
        timing: Timing,
        server: &str,
    ) -> World {
        let (pool, clock) = (database.pool.clone(), system_clock());
        let keys_dir = data.path().join("keys");
        let keys = Keys::open(&keys_dir, clock()).unwrap();
        let options = Options {
            inline_projections: projections::inline_projections(),
            keys: wrapping::load_or_create(&keys_dir, clock()).unwrap(),
            ..Options::default()
        };
        let log = EventLog::open(pool.clone(), options).await.unwrap();
        let (people, tail) = (PrincipalCache::default(), log.tail());
        people.load(&log, &pool).await.unwrap();
        let views = Projections::start(&log).await.unwrap();
        let tokens = Tokens::new(&keys.current(), log.log_id());
        let (evidence, grants) = write_behind::channel();
        let (responses, answered) = write_behind::channel();
        let app = App::new(Inner {
            owner: None,
            engine: Engine::new(log, Arc::clone(&clock)),
            configs: Default::default(),
            keys,
            projections: views,
            principals: people,
            tokens,
            assertions: Assertions::default(),
            login_codes: Default::default(),
            recent_changes: Default::default(),
            dispatch: Dispatch::new(server, timing, Arc::clone(&clock)),
            webhook_wakeup: Default::default(),
            webhook_sender: crate::webhooks::Sender::new(crate::reach::Reachable::All).unwrap(),
            grants: evidence,
            responses,
            logs: LogStore::new(pool.clone()),
            state_uploads: Default::default(),
            registry: Registry::open(data.path(), 1 << 20, None).unwrap(),
            manifests: Manifests::default(),
            config: Config {
                data: data.path().into(),
                server: server.into(),
                control_url: "http://control".into(),
                runner_url: "http://runner".into(),
                runner_ca: None,
                plugin_publisher: std::sync::OnceLock::new(),
                max_blob_bytes: 1 << 20,
                artifact_quota: u64::MAX,
                registry: None,
                webhooks_reach: crate::reach::Reachable::All,
                uploads: Default::default(),
                // One state of the maximum size, and small ones.
                state_quota: schemas::runner::STATE_CIPHERTEXT_BYTES + (1 << 20),
                partition_events: event_log::partitions::SIZE,
            },
            metrics: Metrics::default(),
            tasks: Default::default(),
            clock,
            doctor_permit: Arc::new(tokio::sync::Semaphore::new(1)),
            as_of_permits: Arc::new(tokio::sync::Semaphore::new(crate::state::MAX_AS_OF_QUERIES)),
            changed_installs: Default::default(),
            stopping: CancellationToken::new(),
            pool,
        });
        let mut loops = JoinSet::new();
        loops.spawn(principals::run(app.clone(), tail));
        loops.spawn(grants::run(app.pool.clone(), app.stopping.clone(), grants));
        loops.spawn(idempotent_responses::run(app.pool.clone(), app.stopping.clone(), answered));
        let log = app.engine.log().clone();
        let (tail, position) = dispatch::load(&app.dispatch, &log, &app.pool).await.unwrap();
        let stopping = app.stopping.clone();
        loops.spawn(dispatch::follow(app.dispatch.clone(), log, tail, position, stopping));
        // Tests that count the SQL statements of this loop start the server with their own
        // subscriber.
        let subscriber = tracing::dispatcher::get_default(Clone::clone);
        loops.spawn(liveness::run(app.clone()).with_subscriber(subscriber));
        let router = router::runner(&app);
        World { app, database, router, data, timing, loops }
    }

    /// Stops the loops. From now on, this server learns nothing from the log.
    pub(super) async fn stop_loops(&mut self) {
        self.loops.shutdown().await;
    }

    pub(super) async fn send(&self, request: Request<Body>) -> TestResponse {
        let response = self.response(request).await;
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = to_bytes(response.into_body(), 1 << 24).await.unwrap();
        TestResponse { status, headers, bytes }
    }

    /// Returns the response before its body is read.
    pub(super) async fn response(&self, request: Request<Body>) -> Response<Body> {
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        token: &str,
        body: &Value,
    ) -> TestResponse {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {token}"))
            .body(Body::from(body.to_string()))
            .unwrap();
        self.send(request).await
    }

    pub(super) fn system() -> Call {
        Call::of(Meta::new(Actor::System, Ulid::new().to_string()))
    }

    pub(super) async fn install(&self) -> InstallId {
        let install = InstallId(Ulid::new());
        let call = &World::system();
        let done = self.app.engine.transact(call, move |unit| {
            let create = InstallCommand::Create {
                app: AppId(Ulid::new()),
                name: "acme".into(),
                config_version: 1,
                inputs: BTreeMap::new(),
                auto_approve: false,
            };
            Box::pin(unit.handle::<Install>(install, create))
        });
        done.await.unwrap();
        install
    }

    pub(super) async fn enrolment(&self, purpose: Purpose) -> String {
        enrolments::issue(&self.app, &World::system(), purpose).await.unwrap().value.token
    }

    pub(super) async fn queue(&self, install: InstallId, kind: JobKind, class: JobClass) -> JobId {
        let (run, step) = (RunId(Ulid::new()), StepId(Ulid::new()));
        self.queue_work(Origin::Step { install, run, step }, kind, class, 60_000).await
    }

    pub(super) async fn queue_build(&self) -> JobId {
        let (app, component) = (AppId(Ulid::new()), ComponentId(Ulid::new()));
        let origin = Origin::Build { app, component, build: BuildId(Ulid::new()) };
        self.queue_work(origin, JobKind::Build, JobClass::Pure, 60_000).await
    }

    pub(super) async fn queue_work(
        &self,
        origin: Origin,
        kind: JobKind,
        class: JobClass,
        queue_ttl_ms: u64,
    ) -> JobId {
        let job = JobId(Ulid::new());
        let payload = json!({"job": job, "version": 1}).to_string();
        let manifest = blob::put(&self.app.pool, payload.as_bytes()).await.unwrap();
        let deadline_ms = 3_600_000;
        let work = Work { kind, class, attempts: 2, manifest, origin, deadline_ms, queue_ttl_ms };
        let call = &World::system();
        let done = self.app.engine.transact(call, move |unit| {
            Box::pin(unit.handle::<Job>(job, JobCommand::Queue(work.clone())))
        });
        done.await.unwrap();
        job
    }

    pub(super) async fn handle(&self, job: JobId, command: JobCommand) {
        let call = &World::system();
        let done = self
            .app
            .engine
            .transact(call, move |unit| Box::pin(unit.handle::<Job>(job, command.clone())));
        done.await.unwrap();
    }

    /// Claims and starts a job. Returns the execution.
    pub(super) async fn start_job(&self, agent: &Agent, job: JobId) -> String {
        let claimed = self.claim(agent, job, "c1").await.ok();
        let execution = claimed["execution"].as_str().unwrap().to_string();
        self.report(agent, job, &execution, 1, json!({"type": "started", "payload": {}}))
            .await
            .ok();
        execution
    }

    pub(super) async fn events(&self, kind: &str, id: impl ToString) -> Vec<StoredEvent> {
        let stream = event_log::StreamId::new(kind, id.to_string());
        self.app.engine.log().read_stream(&stream, 0).await.unwrap()
    }

    pub(super) async fn event_types(&self, job: JobId) -> Vec<String> {
        let events = self.events("job", job).await;
        events.iter().map(|stored| stored.event_type.trim_start_matches("job.").into()).collect()
    }

    pub(super) async fn wait_for_event(&self, kind: &str, id: impl ToString, event: &str) {
        let id = id.to_string();
        for _ in 0..400 {
            if self.events(kind, &id).await.iter().any(|stored| stored.event_type == event) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("{event} did not happen to {id}: {:?}", self.events(kind, &id).await);
    }
}
