//! A server in this process, and operations on it without HTTP.
use std::{path::Path, sync::Arc};

use api::{
    App, Call, issue_enrolment_token,
    server::{Options, Server},
};
use domain::{
    actor::Actor,
    enrolment::Purpose,
    ids::{AppId, BuildId, ComponentId, JobId},
    job::{Job, JobClass, JobCommand, JobKind, Origin, Work},
};
use event_log::Meta;
use futures::{FutureExt as _, StreamExt as _, stream};
use schemas::manifest::{Limits, Manifest, PluginRef, Timeouts};
use serde_json::json;
use ulid::Ulid;

use crate::{api_client::ApiClient, database::Database};

/// The allocator of the `stead` program.
#[global_allocator]
static MEMORY: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Starts a server with its own data directory, on free ports of loopback.
pub async fn start(database: &Database, data: &Path) -> Server {
    let options = Options::on_loopback(data.to_path_buf(), database.app());
    Server::start(Options { connections: 16, ..options }).await.unwrap()
}

/// API client of the owner that the first start created.
pub fn client(server: &Server) -> ApiClient {
    let file = server.ready.owner_token_file.as_ref().unwrap();
    let token = std::fs::read_to_string(file).unwrap();
    ApiClient::new(&server.ready.control, token.trim())
}

fn system() -> Call {
    Call::of(Meta::new(Actor::System, Ulid::new().to_string()))
}

/// Creates enrolment tokens for build runners.
pub async fn tokens(app: &App, number: usize) -> Vec<String> {
    let app = Arc::new(app.clone());
    let issued = stream::iter(0..number).map(|_| {
        let app = Arc::clone(&app);
        async move {
            let issued = issue_enrolment_token(&app, &system(), Purpose::Build).await;
            issued.map_err(|problem| problem.detail).unwrap().value.token
        }
    });
    issued.buffer_unordered(32).collect().await
}

/// Queues a build as the server does: manifest, then one commit.
pub async fn queue(app: &App) -> JobId {
    let job = JobId(Ulid::new());
    let manifest = Manifest {
        version: 1,
        job,
        kind: JobKind::Build,
        class: JobClass::Pure,
        plugin: PluginRef {
            name: "terraform_module".into(),
            version: "1".into(),
            digest: None,
            artifact: None,
        },
        artifacts: vec![],
        inputs: json!({"component": "api", "repository": "shop/api"}),
        env: Default::default(),
        role: None,
        limits: Limits { memory_bytes: None, output_bytes: 1 << 20 },
        timeouts: Timeouts { deadline_ms: 3_600_000, grace_ms: 10_000, no_output_ms: None },
        plan: None,
        state: None,
        secrets: vec![],
    };
    let manifest = proof::canonical::json(&manifest).unwrap();
    event_log::blob::put_unflushed(&app.pool, &[&manifest]).await.unwrap();
    let manifest = event_log::blob::digest(&manifest).unwrap();
    let (component, build) = (ComponentId(Ulid::new()), BuildId(Ulid::new()));
    let work = Work {
        kind: JobKind::Build,
        class: JobClass::Pure,
        attempts: 3,
        manifest,
        origin: Origin::Build { app: AppId(Ulid::new()), component, build },
        deadline_ms: 3_600_000,
        queue_ttl_ms: 3_600_000,
    };
    let call = system();
    let queued = app.engine.transact(&call, move |unit| {
        let work = work.clone();
        async move { unit.create::<Job>(job, JobCommand::Queue(work)).await }.boxed()
    });
    queued.await.map_err(|problem| problem.detail).unwrap();
    job
}
