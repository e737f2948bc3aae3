//! Runners that each send the log of one execution.
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use domain::ids::{ExecutionId, JobId};
use measure::Run;
use tokio::task::JoinSet;

use super::terraform::Output;
use crate::{
    agent::Agent, builds::Builds, chunk::Chunk, database::Database, runner_pool::RunnerPool,
    server_process::ServerProcess,
};

/// Number of runners. Each one may send 200 chunks at once, and then 20 per second.
const RUNNERS: usize = 64;

pub struct Ours {
    writers: Vec<Writer>,
    chunks: Arc<Vec<Chunk>>,
    /// Number of acknowledged bytes so far.
    sent: u64,
}

/// A runner and the position in its log.
struct Writer {
    agent: Agent,
    job: JobId,
    execution: ExecutionId,
    offset: u64,
    /// Index of the next chunk. Each runner begins at a different chunk.
    next: usize,
}

impl Ours {
    /// Starts one claimed job per runner.
    pub async fn start(serving: &ServerProcess, output: &Output) -> Ours {
        let client = serving.client();
        let runner_pool = RunnerPool::enrol(&client, &serving.runner, RUNNERS, 1).await;
        Builds::sync(&client, RUNNERS).await;
        let chunks: Vec<_> = output.chunks().map(Chunk::of).collect();
        let mut claiming = JoinSet::new();
        for (number, mut agent) in runner_pool.agents().into_iter().enumerate() {
            let next = number * chunks.len() / RUNNERS;
            claiming.spawn(async move {
                loop {
                    let Some(job) = agent.poll().await.pop() else { continue };
                    if let Some(execution) = agent.claim(job).await {
                        agent.began(job, execution).await;
                        return Writer { agent, job, execution, offset: 0, next };
                    }
                    agent.free(1);
                }
            });
        }
        Ours { writers: claiming.join_all().await, chunks: Arc::new(chunks), sent: 0 }
    }

    /// Sends chunks from all runners for a period.
    pub async fn send(&mut self, period: Duration) -> Run {
        let start = Instant::now();
        let mut sending = JoinSet::new();
        for writer in self.writers.drain(..) {
            sending.spawn(send(writer, Arc::clone(&self.chunks), start, period));
        }
        let (mut bytes, mut calls) = (0, Vec::new());
        while let Some(joined) = sending.join_next().await {
            let (writer, sent, own) = joined.unwrap();
            self.writers.push(writer);
            bytes += sent;
            calls.extend(own);
        }
        self.sent += bytes;
        Run { events: (bytes / 1_000) as usize, whole: start.elapsed(), calls }
    }
}

async fn send(
    mut writer: Writer,
    chunks: Arc<Vec<Chunk>>,
    start: Instant,
    period: Duration,
) -> (Writer, u64, Vec<Duration>) {
    let (before, mut calls) = (writer.offset, Vec::new());
    while start.elapsed() < period {
        let Writer { agent, job, execution, offset, next } = &mut writer;
        let chunk = &chunks[*next % chunks.len()];
        let began = Instant::now();
        agent.log(*job, *execution, *offset, chunk).await;
        calls.push(began.elapsed());
        *offset += chunk.length;
        *next += 1;
    }
    let sent = writer.offset - before;
    (writer, sent, calls)
}

/// Stored bytes for each byte of the logs.
pub struct Stored {
    /// Chunks alone.
    pub chunks: f64,
    /// Tables with TOAST data and indexes.
    pub relations: f64,
}

/// Checks that every acknowledged byte is stored. Returns the stored bytes for each byte of the
/// logs.
pub async fn stored(database: &Database, ours: &Ours) -> Stored {
    let sums = "select sum(end_offset - start_offset)::float8, sum(octet_length(bytes))::float8, \
                (select sum(pg_total_relation_size(relid))::float8 from pg_partition_tree('stead.job_log')) \
                from stead.job_log";
    let sums = sqlx::query_as(sums).fetch_one(database.root()).await;
    let (raw, chunks, relations): (f64, f64, f64) = sums.unwrap();
    assert_eq!(raw as u64, ours.sent, "every acknowledged byte must be stored once");
    Stored { chunks: chunks / raw, relations: relations / raw }
}
