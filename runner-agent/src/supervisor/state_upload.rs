//! Uploads states that a job could not upload, also after the end of the job.
//!
//! Each component has its own upload, so that a large or rejected state does not hold up the
//! others. A drain uploads all states before the agent exits.
use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    io,
    sync::Arc,
    time::Duration,
};

use reqwest::{Method, header::HeaderName};
use schemas::runner::{EXECUTION, STATE_VERSION, StateHead};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tracing::{info, warn};

use super::{Agent, StopLevel};
use crate::{
    client::{ApiRequest, ServerRejection},
    state::{StateStore, pending_uploads},
};

/// Interval between looks for states to upload.
const INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of concurrent uploads.
const CONCURRENT: usize = 4;
/// Rate of the slowest connection that can upload, in bytes per second. As the server's.
const LOWEST_RATE: u64 = 128 << 10;
/// Time for an attempt, beside that for the bytes: several requests without a response.
const ATTEMPT: Duration = Duration::from_secs(60);
/// Pause before a rejected state is sent again: the decision of a user, or a larger quota, can
/// change the response.
const REJECTED_PAUSE: Duration = Duration::from_secs(15 * 60);
/// Number of attempts without a response after which the customer is warned.
const WARN_AFTER: u32 = 2;

/// Uploads states until the agent ends.
pub(super) async fn run(agent: &Arc<Agent>) -> Infallible {
    let mut uploads = Uploads::default();
    loop {
        uploads.start(agent);
        tokio::select! {
            () = sleep(INTERVAL) => {}
            Some(ended) = uploads.running.join_next() => uploads.ended(ended),
        }
    }
}

/// Uploads all states, unless a signal requires the exit. Returns the components whose newest state
/// only this host has.
pub(super) async fn finish(agent: &Arc<Agent>) -> Vec<String> {
    let mut uploads = Uploads { tried: Some(BTreeSet::new()), ..Uploads::default() };
    let mut stopping = agent.stop_level.clone();
    let all = async {
        let mut is_first = true;
        while is_first || !uploads.running.is_empty() {
            is_first = false;
            uploads.start(agent);
            if let Some(ended) = uploads.running.join_next().await {
                uploads.ended(ended);
            }
        }
    };
    tokio::select! {
        () = all => {}
        _detached = stopping.wait_for(|level| *level == StopLevel::Detach) => {}
    }
    pending_components(agent)
}

/// Returns the components whose newest state only this host has.
pub(super) fn pending_components(agent: &Agent) -> Vec<String> {
    pending(agent).iter().map(|store| store.component().to_owned()).collect()
}

fn pending(agent: &Agent) -> Vec<StateStore> {
    pending_uploads(&agent.data.path("state")).unwrap_or_else(|error| {
        warn!(%error, "Cannot look for states to upload");
        Vec::new()
    })
}

/// Uploads in progress, and the failures of earlier ones.
#[derive(Default)]
struct Uploads {
    running: JoinSet<(String, Outcome)>,
    /// Components of the running uploads.
    busy: BTreeSet<String>,
    failed: BTreeMap<String, Failed>,
    /// Components that were tried, if each of them is tried once.
    tried: Option<BTreeSet<String>>,
}

/// Failures of the uploads of one state.
struct Failed {
    head: StateHead,
    count: u32,
    /// Time of the next attempt.
    next: Instant,
}

/// Result of one upload.
enum Outcome {
    /// The server has the state, or there is none to upload.
    Stored(Option<StateHead>),
    NoResponse(StateHead),
    Rejected(StateHead, ServerRejection),
    Unreadable(io::Error),
}

impl Uploads {
    /// Starts the uploads that are due.
    fn start(&mut self, agent: &Arc<Agent>) {
        let now = Instant::now();
        for store in pending(agent) {
            let name = store.component().to_owned();
            let Ok(Some(pending)) = store.pending() else { continue };
            let waits = self
                .failed
                .get(&name)
                .is_some_and(|failed| failed.head == pending.head && failed.next > now);
            if waits || self.busy.contains(&name) || self.running.len() >= CONCURRENT {
                continue;
            }
            if self.tried.as_mut().is_some_and(|tried| !tried.insert(name.clone())) {
                continue;
            }
            self.busy.insert(name.clone());
            let agent = Arc::clone(agent);
            self.running.spawn(async move { (name, upload(&agent, &store).await) });
        }
    }

    fn ended(&mut self, ended: Result<(String, Outcome), tokio::task::JoinError>) {
        let Ok((name, outcome)) = ended else {
            // The name is lost: forget all, and the next look starts each of them again.
            self.busy.clear();
            warn!("An upload of a state panicked");
            return;
        };
        self.busy.remove(&name);
        match outcome {
            Outcome::Stored(head) => {
                self.failed.remove(&name);
                if let Some(head) = head {
                    info!(component = name, serial = head.serial, "Uploaded a state");
                }
            }
            Outcome::NoResponse(head) => {
                let (count, serial) = (self.fail(&name, head.clone(), INTERVAL), head.serial);
                if count >= WARN_AFTER {
                    warn!(
                        component = name,
                        serial,
                        attempts = count,
                        "The server does not take a state; only this host has it"
                    );
                }
            }
            Outcome::Rejected(head, error) => {
                let serial = head.serial;
                warn!(component = name, serial, %error, "The server rejected a state; only this host has it. See `stead-runner state list`");
                self.fail(&name, head, REJECTED_PAUSE);
            }
            Outcome::Unreadable(error) => {
                warn!(component = name, %error, "Cannot read a state to upload it");
            }
        }
    }

    /// Returns the number of failures of this state.
    fn fail(&mut self, name: &str, head: StateHead, pause: Duration) -> u32 {
        let next = Instant::now() + pause;
        let former = self.failed.remove(name).filter(|failed| failed.head == head);
        let count = former.map_or(0, |failed| failed.count) + 1;
        self.failed.insert(name.to_owned(), Failed { head, count, next });
        count
    }
}

async fn upload(agent: &Agent, store: &StateStore) -> Outcome {
    let (upload, ciphertext) = match store.read_stored() {
        Ok(Some(stored)) => stored,
        Ok(None) => return Outcome::Stored(None),
        Err(error) => return Outcome::Unreadable(error),
    };
    let version = match serde_json::to_string(&upload) {
        Ok(version) => version,
        Err(error) => return Outcome::Unreadable(error.into()),
    };
    let transfer = Duration::from_secs(ciphertext.len() as u64 / LOWEST_RATE);
    let path = format!("/runner/v1/state/{}", store.component());
    let mut request = ApiRequest::new(Method::PUT, path)
        .bytes(ciphertext)
        .parked(transfer)
        .header(HeaderName::from_static(STATE_VERSION), &version);
    if let Some((_, execution)) = upload.written_by {
        request = request.header(HeaderName::from_static(EXECUTION), &execution.to_string());
    }
    let sent = timeout(ATTEMPT + 2 * transfer, agent.client.send::<StateHead>(&request)).await;
    match sent {
        Ok(Ok(_)) => match store.mark_uploaded(&upload.head) {
            Ok(()) => Outcome::Stored(Some(upload.head)),
            Err(error) => Outcome::Unreadable(error),
        },
        Ok(Err(rejection)) => Outcome::Rejected(upload.head, rejection),
        Err(_no_response) => Outcome::NoResponse(upload.head),
    }
}

#[cfg(test)]
mod tests;
