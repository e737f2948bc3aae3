//! State of the server's background tasks. `server/supervise.rs` restarts the tasks.
use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use tokio::sync::watch;

pub struct Tasks {
    down: Mutex<BTreeSet<&'static str>>,
    failed: watch::Sender<Option<&'static str>>,
}

impl Default for Tasks {
    fn default() -> Tasks {
        Tasks { down: Mutex::default(), failed: watch::Sender::new(None) }
    }
}

impl Tasks {
    /// Names of the tasks that are not running.
    pub fn down(&self) -> Vec<&'static str> {
        let down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        down.iter().copied().collect()
    }

    /// Waits until a task has failed permanently. Returns its name.
    pub async fn failed(&self) -> &'static str {
        let mut failed = self.failed.subscribe();
        loop {
            if let Some(name) = *failed.borrow_and_update() {
                return name;
            }
            // `self` owns the sender, so `changed` cannot fail.
            let _ = failed.changed().await;
        }
    }

    /// Records whether a task runs.
    pub(crate) fn set(&self, name: &'static str, runs: bool) {
        let mut down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        if runs {
            down.remove(name)
        } else {
            down.insert(name)
        };
    }

    /// Records that a task has failed permanently.
    pub(crate) fn fail(&self, name: &'static str) {
        self.set(name, false);
        // Only the first failure is reported, because later failures usually follow from it.
        self.failed.send_if_modified(|failed| failed.is_none() && failed.replace(name).is_none());
    }
}
