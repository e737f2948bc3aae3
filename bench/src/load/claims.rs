//! From the acknowledged queue of a job to the answer of its claim, and a bare commit beside it.
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use api::{
    execute::Call,
    server::{Options, Server, TlsFor},
    state::App,
    usecases::{enrolments, jobs},
};
use domain::{
    actor::Actor,
    enrolment::Purpose,
    ids::{AppId, BuildId, ComponentId, JobId},
    job::{Class, JobCommand, JobKind, Origin, Work},
};
use event_log::Meta;
use futures::{StreamExt as _, stream};
use schemas::{
    manifest::{Limits, Manifest, PluginRef, Timeouts},
    runner,
};
use serde_json::json;
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::{sync::mpsc, task::JoinSet};
use ulid::Ulid;

use super::{Ask, agent::Agent, database::Database};

/// So many runners wait: none of them may poll more than twice a second for long.
const RUNNERS: usize = 64;
/// Claims and bare commits take turns of so many.
const TURN: usize = 50;

pub struct Claims {
    /// Each claim.
    pub queued: Vec<Duration>,
    /// Each bare commit.
    pub commits: Vec<Duration>,
    /// For the runners to come.
    pub tokens: Vec<String>,
}

pub async fn measure(database: &Database, data: &Path, ask: Ask) -> Claims {
    let options = Options {
        data: data.to_path_buf(),
        database: database.embedded.app(),
        owner: None,
        connections: 16,
        control: "127.0.0.1:0".parse().unwrap(),
        runner: "127.0.0.1:0".parse().unwrap(),
        control_url: None,
        runner_url: None,
        certificate: None,
        tls_for: TlsFor::Both,
        behind_proxy: false,
        max_blob_bytes: 1 << 20,
        new_owner_token: false,
    };
    let server = Server::start(options).await.unwrap();
    let app = server.app.clone();
    let mut bare = bare(database).await;

    let (claimed, mut answers) = mpsc::unbounded_channel();
    let mut runners = JoinSet::new();
    for token in tokens(&app, RUNNERS).await {
        let mut agent = Agent::enrol(&server.ready.runner, &token).await;
        let claimed = claimed.clone();
        runners.spawn(async move {
            loop {
                for job in agent.poll().await {
                    if let Some(execution) = agent.claim(job).await {
                        let _heard = claimed.send((job, Instant::now()));
                        agent.finish(job, execution).await;
                    }
                }
            }
        });
    }
    let (mut queued, mut commits) = (Vec::new(), Vec::new());
    // The first turn warms caches and prepared statements and is not counted.
    while queued.len() < ask.samples + TURN {
        for _ in 0..TURN {
            let job = queue(&app).await;
            let acknowledged = Instant::now();
            let (answered, at) = answers.recv().await.unwrap();
            assert_eq!(answered, job);
            queued.push(at.saturating_duration_since(acknowledged));
            // What the runner reports after it is not part of the next one.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for _ in 0..TURN {
            let began = Instant::now();
            bare.execute("insert into bare (word) values ('one row')").await.unwrap();
            commits.push(began.elapsed());
        }
        if queued.len() % 1_000 == 0 {
            eprintln!("  {} of {} claims", queued.len(), ask.samples);
        }
    }
    runners.shutdown().await;
    let tokens = tokens(&app, ask.runners).await;
    server.stop().await;
    bare.close().await.unwrap();
    Claims { queued: queued.split_off(TURN), commits: commits.split_off(TURN), tokens }
}

/// A table without any index, and a connection of its own.
async fn bare(database: &Database) -> PgConnection {
    let mut bare = PgConnection::connect_with(&database.embedded.owner()).await.unwrap();
    bare.execute("create table bare (word text not null)").await.unwrap();
    bare
}

fn system() -> Call {
    Call::of(Meta::new(Actor::System, Ulid::new().to_string()))
}

async fn tokens(app: &App, number: usize) -> Vec<String> {
    let app = Arc::new(app.clone());
    let issued = stream::iter(0..number).map(|_| {
        let app = Arc::clone(&app);
        async move {
            let issued = enrolments::issue(&app, &system(), Purpose::Build).await;
            issued.map_err(|problem| problem.detail).unwrap().answer.token
        }
    });
    issued.buffer_unordered(32).collect().await
}

/// Queue a build as the server does: manifest, then one commit.
async fn queue(app: &App) -> JobId {
    let job = JobId(Ulid::new());
    let manifest = Manifest {
        version: 1,
        job,
        kind: runner::JobKind::Build,
        class: runner::JobClass::Pure,
        plugin: PluginRef { name: "terraform_module".into(), version: "1".into(), digest: None },
        artifacts: vec![],
        inputs: json!({"component": "api", "repository": "shop/api"}),
        env: Default::default(),
        role: None,
        limits: Limits { memory_bytes: None, output_bytes: 1 << 20 },
        timeouts: Timeouts { deadline_ms: 3_600_000, grace_ms: 10_000, no_output_ms: None },
        plan: None,
    };
    let manifest = proof::canonical::json(&manifest).unwrap();
    let manifest = event_log::blob::put(&app.pool, &manifest).await.unwrap();
    let (component, build) = (ComponentId(Ulid::new()), BuildId(Ulid::new()));
    let work = Work {
        kind: JobKind::Build,
        class: Class::Pure,
        attempts: 3,
        manifest,
        origin: Origin::Build { app: AppId(Ulid::new()), component, build },
        deadline_ms: 3_600_000,
        queue_ttl_ms: 3_600_000,
    };
    let queued = jobs::tell(app, &system(), job, JobCommand::Queue(work)).await;
    queued.map_err(|problem| problem.detail).unwrap();
    job
}
