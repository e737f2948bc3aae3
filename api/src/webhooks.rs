//! Endpoints and deliveries of webhooks, and the requests to the endpoints.
//!
//! The log records the settings of a webhook, but neither its URL nor its signing secret: both are
//! in the table `webhook_endpoint`. A delivery is one row for each webhook and event. It is inserted
//! in the transaction that advances the consumer, and it stays pending until an endpoint
//! accepted it or the last attempt failed. So a crash loses no message, and can repeat one.
mod address;
mod deliveries;
mod endpoints;
mod send;

use std::time::Duration;

pub(crate) use self::{
    address::Destination,
    deliveries::{
        Attempt, Delivery, DeliveryState, Due, Filter, claim_due, delete_old, enqueue, finish,
        next_due, page, replay,
    },
    endpoints::{
        Endpoint, Sending, activate, create_consumer, deactivate, delete_replaced, discard,
        endpoint, put, sending, subscribers,
    },
    send::{Message, Outcome, Sender},
};

/// Name, version and shard of the consumer of the log. The projection `webhooks` is another consumer.
pub(crate) const CONSUMER: (&str, i32, i32) = ("webhook_deliveries", 1, 0);

/// Waits after failed attempts, about 33 hours in total. The last attempt has no wait.
const BACK_OFF: [Duration; 10] = [
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(2 * 60),
    Duration::from_secs(10 * 60),
    Duration::from_secs(30 * 60),
    Duration::from_secs(60 * 60),
    Duration::from_secs(3 * 60 * 60),
    Duration::from_secs(6 * 60 * 60),
    Duration::from_secs(10 * 60 * 60),
    Duration::from_secs(12 * 60 * 60),
];
/// Longest wait that an endpoint can request by `Retry-After`.
const LONGEST_REQUESTED: Duration = Duration::from_secs(60 * 60);

/// Returns the wait after attempt number `attempts`, from 1. `None` if it was the last one.
pub(crate) fn back_off(attempts: u32, requested: Option<Duration>) -> Option<Duration> {
    let index = usize::try_from(attempts.saturating_sub(1)).unwrap_or(usize::MAX);
    let wait = BACK_OFF.get(index)?;
    Some(requested.map_or(*wait, |requested| requested.min(LONGEST_REQUESTED).max(*wait)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_until_the_last_attempt() {
        let waits: Vec<_> = (1..=11).map(|attempt| back_off(attempt, None)).collect();
        assert!(waits[..10].is_sorted() && waits[..10].iter().all(Option::is_some));
        assert_eq!(waits[10], None);
        let hour = Duration::from_secs(60 * 60);
        assert_eq!(back_off(1, Some(4 * hour)), Some(hour));
        assert_eq!(back_off(7, Some(hour)), Some(3 * hour));
    }
}
