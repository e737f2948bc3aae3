//! Complete server for the tests of this crate, on a new database of a real Postgres.
use std::path::Path;

use chrono::TimeDelta;
use domain::{
    decider::Decider as _,
    digest::Digest,
    ids::{AppId, BuildId, ComponentId, ExecutionId, JobId, RunnerId, SessionId},
    job::{Job, JobClass, JobCommand, JobKind, Origin, Work},
};
use event_log::{Commit, Meta, NewEvent, StreamId, Write, testing};
use schemas::manifest::{ArtifactRef, Fence, Limits, Manifest, PluginRef, Timeouts};
use serde_json::{Value, json};
use ulid::Ulid;

use super::{Options, Server, StartError};
use crate::{
    clock::{Clock, system_clock},
    state::App,
};

/// Server with its data directory.
pub(crate) struct Started {
    pub server: Server,
    pub data: tempfile::TempDir,
    pub http: reqwest::Client,
    pub database: String,
}

/// Job that an execution holds, with its token.
pub(crate) struct ClaimedJob {
    pub job: JobId,
    pub execution: ExecutionId,
    pub token: String,
}

impl Started {
    /// Starts a server on free loopback ports.
    pub(crate) async fn new() -> Started {
        Started::by(system_clock()).await
    }

    /// Starts a server with another clock.
    pub(crate) async fn by(clock: Clock) -> Started {
        let data = tempfile::tempdir().unwrap();
        let database = testing::fresh_database().await.unwrap();
        let server = Server::start_with(options(data.path(), &database.url), clock).await.unwrap();
        Started { server, data, http: client(), database: database.url }
    }

    /// Starts a server with other options.
    pub(crate) async fn with(change: impl FnOnce(&mut Options)) -> Started {
        let data = tempfile::tempdir().unwrap();
        let database = testing::fresh_database().await.unwrap();
        let mut options = options(data.path(), &database.url);
        change(&mut options);
        let server = Server::start_with(options, system_clock()).await.unwrap();
        Started { server, data, http: client(), database: database.url }
    }

    /// Starts another server on the same database, with the same archives and wrapping key.
    pub(crate) async fn beside(first: &Started) -> Started {
        Started::try_beside(first).await.unwrap()
    }

    /// Starts another server, which may fail.
    pub(crate) async fn try_beside(other: &Started) -> Result<Started, StartError> {
        Started::beside_at(other, &other.database).await
    }

    /// Starts another server with another database URL.
    pub(crate) async fn beside_at(other: &Started, database: &str) -> Result<Started, StartError> {
        let data = tempfile::tempdir().unwrap();
        std::fs::create_dir(data.path().join("keys")).unwrap();
        let [from, to] = [&other.data, &data].map(|data| data.path().join("keys/subjects.key"));
        std::fs::copy(from, to).unwrap();
        let archives = Some(other.data.path().join("archives"));
        let options = Options { archives, ..options(data.path(), database) };
        let server = Server::start_with(options, system_clock()).await?;
        Ok(Started { server, data, http: client(), database: database.to_owned() })
    }

    pub(crate) fn app(&self) -> &App {
        &self.server.app
    }

    pub(crate) fn control(&self, path: &str) -> String {
        format!("{}{path}", self.server.ready.control)
    }

    pub(crate) fn runner(&self, path: &str) -> String {
        format!("{}{path}", self.server.ready.runner)
    }

    pub(crate) fn owner_token(&self) -> String {
        let file = self.server.ready.owner_token_file.as_ref().unwrap();
        std::fs::read_to_string(file).unwrap().trim().to_string()
    }

    /// Queues a job with these inputs and artifacts, and claims it.
    pub(crate) async fn held(
        &self,
        kind: JobKind,
        inputs: Value,
        artifacts: Vec<ArtifactRef>,
    ) -> ClaimedJob {
        self.held_manifest(manifest(JobId(Ulid::new()), kind, inputs, artifacts)).await
    }

    /// Queues the job of this manifest, and claims it.
    pub(crate) async fn held_manifest(&self, manifest: Manifest) -> ClaimedJob {
        let (app, job, kind) = (self.app(), manifest.job, manifest.kind);
        let manifest = proof::canonical::json(&manifest).unwrap();
        let manifest = event_log::blob::put(&app.pool, &manifest).await.unwrap();
        let (execution, runner) = (ExecutionId(Ulid::new()), RunnerId(Ulid::new()));
        let (session, claim_id) = (SessionId(Ulid::new()), "claim".to_string());
        let claim = JobCommand::Claim { execution, runner, session, claim_id };
        append_commands(app, job, vec![JobCommand::Queue(work(kind, manifest)), claim]).await;
        let (fence, deadline) = (Fence { epoch: 1, position: 1 }, app.now() + TimeDelta::hours(1));
        let token = app.tokens.job(runner, job, execution, fence, deadline, app.now()).unwrap();
        ClaimedJob { job, execution, token }
    }
}

/// Appends the events of the job's commands.
pub(crate) async fn append_commands(app: &App, job: JobId, commands: Vec<JobCommand>) {
    let mut loaded = app.log().load::<Job>(&job.to_string()).await.unwrap();
    let (expected, mut events) = (loaded.version, vec![]);
    for command in commands {
        let domain_events = loaded.state.decide(command, app.now()).unwrap();
        events.extend(domain_events.iter().map(|domain_event| NewEvent::of(domain_event).unwrap()));
        loaded.evolve(domain_events);
    }
    let stream = StreamId::new(Job::NAME, job.to_string());
    let meta = Meta::new(domain::actor::Actor::System, Ulid::new().to_string());
    let commit = Commit::of(meta, vec![Write { stream, expected, events }]);
    app.log().append(commit).await.unwrap();
}

/// Start options of a test server.
pub(crate) fn options(data: &Path, database: &str) -> Options {
    let database = event_log::connect::options(database).unwrap();
    Options::on_loopback(data.to_path_buf(), database)
}

/// Creates a client for servers with and without TLS.
pub(crate) fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

pub(crate) fn manifest(
    job: JobId,
    kind: JobKind,
    inputs: Value,
    artifacts: Vec<ArtifactRef>,
) -> Manifest {
    Manifest {
        version: 1,
        job,
        kind,
        class: JobClass::Pure,
        plugin: PluginRef {
            name: "terraform_module".into(),
            version: "1".into(),
            digest: None,
            artifact: None,
        },
        artifacts,
        inputs,
        env: Default::default(),
        role: None,
        limits: Limits { memory_bytes: None, output_bytes: 1024 },
        timeouts: Timeouts { deadline_ms: 60_000, grace_ms: 1_000, no_output_ms: None },
        plan: None,
        state: None,
        secrets: vec![],
    }
}

/// Work of a build job.
pub(crate) fn work(kind: JobKind, manifest: Digest) -> Work {
    let (app, component) = (AppId(Ulid::new()), ComponentId(Ulid::new()));
    let origin = Origin::Build { app, component, build: BuildId(Ulid::new()) };
    let (class, attempts) = (JobClass::Pure, 3);
    Work { kind, class, attempts, manifest, origin, deadline_ms: 60_000, queue_ttl_ms: 60_000 }
}

pub(crate) fn build_inputs(repository: &str, source: &Digest) -> Value {
    json!({"component": "x", "repository": repository, "source": source})
}
