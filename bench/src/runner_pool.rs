//! Runners that work on queued jobs, one at a time: claim, start, one log chunk, end.
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};
use schemas::runner::Outcome;
use tokio::{sync::Semaphore, task::JoinSet};

use crate::{agent::Agent, api_client::ApiClient, chunk::Chunk, wire::Wire};

/// Timeout of a long poll in seconds, for a runner that must stop soon after the last job.
const WAIT_S: u32 = 1;

/// Maximum number of concurrent jobs. A pool may have more runners, because each runner has a rate
/// limit.
const MAX_CONCURRENT: usize = 64;

pub struct RunnerPool(Vec<Agent>);

pub struct Worked {
    /// Time from each job's claim to its acknowledged end.
    pub calls: Vec<Duration>,
    /// End of the last job. Runners that still wait for work stop a moment later.
    pub until: Instant,
}

impl Worked {
    fn nothing() -> Worked {
        Worked { calls: Vec::new(), until: Instant::now() }
    }
}

/// Outcome of each job and content of its log. Without content, no chunk is sent.
#[derive(Clone)]
pub struct JobResult {
    pub outcome: Outcome,
    pub log: Arc<[u8]>,
}

impl RunnerPool {
    /// Enrols build runners with this number of slots, over their own connections.
    pub async fn enrol(client: &ApiClient, runner: &str, runners: usize, slots: u32) -> RunnerPool {
        let agents = stream::iter(0..runners).map(|_| async move {
            let request = client.post("/v1/runners/enrolment-tokens", None);
            let issued = client.wire().send(request).await.unwrap().ok().json();
            let token = issued["enrolment"]["token"].as_str().unwrap();
            Agent::enrol_over(Wire::to(runner), token, slots).await
        });
        RunnerPool(agents.buffer_unordered(16).collect().await)
    }

    pub fn agents(self) -> Vec<Agent> {
        self.0
    }

    /// Works until the runners have finished this number of jobs.
    pub async fn work(&mut self, jobs: usize, result: &JobResult) -> Worked {
        let (done, permits) =
            (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(MAX_CONCURRENT)));
        let mut working = JoinSet::new();
        for agent in self.0.drain(..) {
            let (done, permits) = (Arc::clone(&done), Arc::clone(&permits));
            working.spawn(work(agent, permits, (done, jobs), result.clone()));
        }
        let mut worked = Worked::nothing();
        while let Some(joined) = working.join_next().await {
            let (agent, own) = joined.unwrap();
            self.0.push(agent);
            worked.calls.extend(own.calls);
            worked.until = worked.until.max(own.until);
        }
        worked
    }
}

async fn work(
    mut agent: Agent,
    permits: Arc<Semaphore>,
    (done, all): (Arc<AtomicUsize>, usize),
    JobResult { outcome, log }: JobResult,
) -> (Agent, Worked) {
    let chunk = (!log.is_empty()).then(|| Chunk::of(&log));
    let mut worked = Worked::nothing();
    while done.load(Ordering::Relaxed) < all {
        let jobs = agent.poll_for(WAIT_S).await;
        for job in &jobs {
            let _permit = permits.acquire().await.unwrap();
            let began = Instant::now();
            let Some(execution) = agent.claim(*job).await else { continue };
            agent.began(*job, execution).await;
            if let Some(chunk) = &chunk {
                agent.log(*job, execution, 0, chunk).await;
            }
            agent.ended(*job, execution, outcome, &log).await;
            worked.until = Instant::now();
            worked.calls.push(worked.until - began);
            done.fetch_add(1, Ordering::Relaxed);
        }
        agent.free(jobs.len());
    }
    (agent, worked)
}
