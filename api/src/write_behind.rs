//! Write-behind of data that can be reproduced: rows are written in batches after the response, so
//! no caller waits for the disk.
pub(crate) mod grants;
pub(crate) mod idempotent_responses;

use std::sync::Arc;

use tokio::sync::{
    Mutex,
    mpsc::{self, Receiver, Sender, error::TrySendError},
};
use tokio_util::sync::CancellationToken;

/// Capacity of the queue. If it is full, the caller writes its own item.
const CAPACITY: usize = 4_096;
/// Maximum number of items per batch.
const BATCH: usize = 256;

/// Sender of deferred writes.
pub struct WriteBehind<T>(Sender<T>);

/// Receiver of deferred writes for the single loop that performs them. A clone lets the loop
/// continue after a restart.
pub(crate) struct WriteBehindQueue<T>(Arc<Mutex<Receiver<T>>>);

impl<T> Clone for WriteBehindQueue<T> {
    fn clone(&self) -> Self {
        WriteBehindQueue(Arc::clone(&self.0))
    }
}

/// Creates a queue and returns both ends.
pub(crate) fn channel<T>() -> (WriteBehind<T>, WriteBehindQueue<T>) {
    let (sender, receiver) = mpsc::channel(CAPACITY);
    (WriteBehind(sender), WriteBehindQueue(Arc::new(Mutex::new(receiver))))
}

impl<T> WriteBehind<T> {
    /// Queues an item. Returns the item if the queue is full or closed.
    pub fn push(&self, item: T) -> Result<(), T> {
        self.0.try_send(item).map_err(|refused| match refused {
            TrySendError::Full(item) | TrySendError::Closed(item) => item,
        })
    }
}

impl<T> WriteBehindQueue<T> {
    /// Waits for the next batch. After the server stops, returns the remaining items, then `None`.
    pub(crate) async fn next_batch(&self, stopping: &CancellationToken) -> Option<Vec<T>> {
        let (mut batch, mut receiver) = (Vec::new(), self.0.lock().await);
        loop {
            tokio::select! {
                biased;
                () = stopping.cancelled(), if !receiver.is_closed() => receiver.close(),
                number = receiver.recv_many(&mut batch, BATCH) => return (number > 0).then_some(batch),
            }
        }
    }
}
