//! What is written after it was answered, many at a time: nobody waits for the disk for what can be had again.
use std::sync::Arc;

use tokio::sync::{
    Mutex,
    mpsc::{self, Receiver, Sender, error::TrySendError},
};
use tokio_util::sync::CancellationToken;

/// How many may wait; whoever has one more writes it.
const WAITING: usize = 4_096;
/// How many are written at once.
const TOGETHER: usize = 256;

/// Where it is left.
pub struct Unhurried<T>(Sender<T>);

/// Receiver of deferred writes for the one loop that performs them. A clone serves the loop after a restart.
pub struct Left<T>(Arc<Mutex<Receiver<T>>>);

impl<T> Clone for Left<T> {
    fn clone(&self) -> Self {
        Left(Arc::clone(&self.0))
    }
}

/// Both ends.
pub fn channel<T>() -> (Unhurried<T>, Left<T>) {
    let (leave, left) = mpsc::channel(WAITING);
    (Unhurried(leave), Left(Arc::new(Mutex::new(left))))
}

impl<T> Unhurried<T> {
    /// Leave it. Given back where too many wait, or nobody writes any more.
    pub fn leave(&self, what: T) -> Result<(), T> {
        self.0.try_send(what).map_err(|refused| match refused {
            TrySendError::Full(what) | TrySendError::Closed(what) => what,
        })
    }
}

impl<T> Left<T> {
    /// The next of what is left, until the server stops, and then the rest. `None`: that was all.
    pub async fn next(&self, stopping: &CancellationToken) -> Option<Vec<T>> {
        let (mut some, mut left) = (Vec::new(), self.0.lock().await);
        loop {
            tokio::select! {
                biased;
                () = stopping.cancelled(), if !left.is_closed() => left.close(),
                number = left.recv_many(&mut some, TOGETHER) => return (number > 0).then_some(some),
            }
        }
    }
}
