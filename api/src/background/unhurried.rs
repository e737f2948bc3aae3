//! Write-behind of data that can be reproduced: rows are written in batches after the response, so
//! no caller waits for the disk.
use std::sync::Arc;

use tokio::sync::{
    Mutex,
    mpsc::{self, Receiver, Sender, error::TrySendError},
};
use tokio_util::sync::CancellationToken;

/// Capacity of the queue. If it is full, the caller writes its own item.
const WAITING: usize = 4_096;
/// Maximum number of items per batch.
const TOGETHER: usize = 256;

/// Sender of deferred writes.
pub struct Unhurried<T>(Sender<T>);

/// Receiver of deferred writes for the single loop that performs them. A clone lets the loop
/// continue after a restart.
pub struct Left<T>(Arc<Mutex<Receiver<T>>>);

impl<T> Clone for Left<T> {
    fn clone(&self) -> Self {
        Left(Arc::clone(&self.0))
    }
}

/// Creates a queue and returns both ends.
pub fn channel<T>() -> (Unhurried<T>, Left<T>) {
    let (leave, left) = mpsc::channel(WAITING);
    (Unhurried(leave), Left(Arc::new(Mutex::new(left))))
}

impl<T> Unhurried<T> {
    /// Queues an item. Returns the item if the queue is full or closed.
    pub fn leave(&self, what: T) -> Result<(), T> {
        self.0.try_send(what).map_err(|refused| match refused {
            TrySendError::Full(what) | TrySendError::Closed(what) => what,
        })
    }
}

impl<T> Left<T> {
    /// Returns the next batch until the server stops, then the remaining items. Returns `None` when
    /// the queue is empty.
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
