//! Time from the acknowledged queue request of a job to the response of its claim, compared with a
//! bare commit.
use std::{
    path::Path,
    time::{Duration, Instant},
};

use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    agent::Agent,
    database::Database,
    server::{self, queue, tokens},
};

/// Number of waiting runners.
const RUNNERS: usize = 2_000;
/// Number of claims or bare commits per turn.
const TURN: usize = 50;

pub struct Claims {
    /// Time from each acknowledged queue request to the response of the claim.
    pub queued: Vec<Duration>,
    /// Time from each acknowledged queue request until the runner received the offer.
    pub offered: Vec<Duration>,
    /// Time of each bare commit.
    pub commits: Vec<Duration>,
}

pub async fn measure(database: &Database, data: &Path, samples: usize) -> Claims {
    let server = server::start(database, data).await;
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
                    let offered = Instant::now();
                    if let Some(execution) = agent.claim(job).await {
                        let _sent = claimed.send((job, offered, Instant::now()));
                        agent.finish(job, execution).await;
                    }
                }
            }
        });
    }
    let (mut queued, mut offers, mut commits) = (Vec::new(), Vec::new(), Vec::new());
    // The first turn warms caches and prepared statements, and is not counted.
    while queued.len() < samples + TURN {
        for _ in 0..TURN {
            let job = queue(&app).await;
            let acknowledged = Instant::now();
            let (answered, offered, at) = answers.recv().await.unwrap();
            assert_eq!(answered, job);
            offers.push(offered.saturating_duration_since(acknowledged));
            queued.push(at.saturating_duration_since(acknowledged));
            // The pause lets the runner send its reports, so that they do not slow the next claim.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for _ in 0..TURN {
            let began = Instant::now();
            bare.execute("insert into bare (word) values ('one row')").await.unwrap();
            commits.push(began.elapsed());
        }
        if queued.len() % 1_000 == 0 {
            eprintln!("  {} of {} claims", queued.len(), samples);
        }
    }
    runners.shutdown().await;
    server.stop().await;
    bare.close().await.unwrap();
    let [queued, offered, commits] = [queued, offers, commits].map(|mut all| all.split_off(TURN));
    Claims { queued, offered, commits }
}

/// Creates a table without an index, with its own connection.
async fn bare(database: &Database) -> PgConnection {
    let mut bare = PgConnection::connect_with(&database.owner()).await.unwrap();
    bare.execute("create table if not exists bare (word text not null)").await.unwrap();
    bare
}
