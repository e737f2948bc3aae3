//! Follows the log and updates the dispatch state.
use std::sync::Arc;

use domain::{
    decider::Decider as _,
    job::{Job, JobEvent},
    runner::Runner,
};
use event_log::{EventLog, LogError, StoredEvent};
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio_util::sync::CancellationToken;

use super::{Dispatch, job_table::JobEventRecord};

/// Number of events per read from the database.
const PAGE: u32 = 1_000;

impl Dispatch {
    /// Applies events in log order.
    pub(crate) fn apply(&self, events: &[StoredEvent]) {
        for stored in events {
            if let Err(error) = self.apply_one(stored) {
                tracing::error!(position = stored.position, error = %error, "Dispatcher cannot read an event");
            }
        }
    }

    fn apply_one(&self, stored: &StoredEvent) -> Result<(), LogError> {
        let (kind, sequence) = (stored.stream.aggregate_type.as_str(), stored.sequence);
        let id = &stored.stream.aggregate_id;
        let unreadable = |what: String| LogError::Damaged { position: stored.position, what };
        if kind == Job::NAME {
            let job = id.parse().map_err(|error| unreadable(format!("{error}")))?;
            let (position, recorded_at) = (stored.position, stored.recorded_at);
            for (part, event) in stored.decode()?.into_iter().enumerate() {
                let is_claim = matches!(event, JobEvent::Claimed { .. });
                let claim = is_claim.then(|| Box::new(stored.clone()));
                let sequence = (sequence, part);
                let domain_event =
                    JobEventRecord { job, sequence, position, recorded_at, event, claim };
                let now = self.moment();
                self.state().on_job(domain_event, now, self.timing());
            }
        } else if kind == Runner::NAME {
            let runner = id.parse().map_err(|error| unreadable(format!("{error}")))?;
            for (part, event) in stored.decode()?.into_iter().enumerate() {
                let (at, now) = ((sequence, part), self.moment());
                self.state().on_runner(runner, at, event, now, self.timing());
            }
        }
        Ok(())
    }
}

/// Applies the log from `position` on, until the server stops. Events of this server arrive in
/// memory. Other events, and events that were missed, are read from the database.
pub(crate) async fn follow(
    dispatch: Dispatch,
    log: EventLog,
    mut tail: Receiver<Arc<[StoredEvent]>>,
    mut position: u64,
    stopping: CancellationToken,
) {
    let mut positions = log.positions();
    if *positions.borrow_and_update() > position {
        position = catch_up(&dispatch, &log, position).await;
    }
    loop {
        dispatch.0.applied.send_replace(position);
        let read = tokio::select! {
            // The tail comes before the positions, because events from the tail need not be read
            // from the log.
            biased;
            () = stopping.cancelled() => return,
            batch = tail.recv() => match batch {
                Ok(batch) if batch.first().is_some_and(|first| first.position == position + 1) => {
                    dispatch.apply(&batch);
                    position += batch.len() as u64;
                    false
                }
                // The batch is already applied, in part or completely, or a gap precedes it.
                Ok(batch) => batch.last().is_some_and(|last| last.position > position),
                Err(RecvError::Lagged(_)) => true,
                Err(RecvError::Closed) => return,
            },
            changed = positions.changed() => match changed {
                Ok(()) => *positions.borrow_and_update() > position,
                Err(_) => return,
            },
        };
        if read {
            position = catch_up(&dispatch, &log, position).await;
        }
    }
}

async fn catch_up(dispatch: &Dispatch, log: &EventLog, mut position: u64) -> u64 {
    loop {
        match log.read(position, PAGE).await {
            Ok(events) => {
                dispatch.apply(&events);
                position += events.len() as u64;
                if events.len() < PAGE as usize {
                    return position;
                }
            }
            Err(error) => {
                // The next append or the next change of the head triggers another attempt.
                tracing::warn!(error = %error, "Dispatcher cannot read the log, trying again");
                return position;
            }
        }
    }
}
