//! Limits of a child: its time, its time without output, and its memory.
use std::time::{Duration, Instant};

use schemas::manifest::Limits;

use super::order::{CancelOrder, StopCause};
use crate::{data::JobDir, host, plugins::Cancel, processes, shim::recorder::Recorder};

const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Interval between syncs of the log.
const SYNC_INTERVAL: Duration = Duration::from_millis(200);

/// Returns the prefix of every command of a job: a shell that limits its virtual memory and then
/// executes the command.
pub fn wrapper(limits: &Limits) -> Vec<String> {
    let Some(bytes) = limits.memory_bytes else { return Vec::new() };
    let script = format!("ulimit -v {} && exec \"$@\"", bytes / 1024);
    ["/bin/sh", "-c", &script, "stead-limits"].map(String::from).to_vec()
}

/// Watches one execution. Stops it on a cancel request, at its deadline, or after too long without
/// output.
pub struct Watch {
    pub dir: JobDir,
    pub cancel: Cancel,
    pub recorder: Recorder,
    pub deadline_uptime_ms: u64,
    pub grace: Duration,
    /// Longest grace period that a cancel request can set.
    pub max_grace: Duration,
    pub no_output: Option<Duration>,
    /// Cause of the first stop request.
    pub cause: Option<StopCause>,
    pub forced_at: Option<Instant>,
    synced: Instant,
}

impl Watch {
    pub fn new(
        dir: JobDir,
        recorder: Recorder,
        deadline_uptime_ms: u64,
        (grace, max_grace): (Duration, Duration),
        no_output: Option<Duration>,
    ) -> Self {
        let (cancel, now) = (Cancel::default(), Instant::now());
        let (cause, forced_at, synced) = (None, None, now);
        Watch {
            dir,
            cancel,
            recorder,
            deadline_uptime_ms,
            grace,
            max_grace,
            no_output,
            cause,
            forced_at,
            synced,
        }
    }

    /// Checks repeatedly. Returns 20 seconds after the forced stop. The caller drops this future if
    /// the plugin ends earlier.
    pub async fn until_stuck(&mut self) {
        loop {
            self.check();
            let timeout = Duration::from_secs(20);
            if self.cancel.forced.is_cancelled()
                && self.forced_at.is_some_and(|at| at.elapsed() > timeout)
            {
                return;
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    /// Stops the child with the grace period of this request. A later request can only shorten the
    /// grace period.
    pub fn stop(&mut self, order: &CancelOrder) {
        let grace = order.grace_ms.map_or(self.grace, Duration::from_millis).min(self.max_grace);
        let at = Instant::now() + grace;
        let sooner = self.forced_at.is_none_or(|forced| at < forced);
        if sooner {
            self.forced_at = Some(at);
        }
        if self.cause.is_none() {
            self.cause = Some(order.cause);
            let seconds = grace.as_secs();
            self.recorder
                .writer()
                .write_shim_record(&format!("stopping within {seconds} s: {}", order.reason));
            self.cancel.requested.cancel();
        }
    }

    /// Stops the child because the shim received a signal.
    pub fn stop_on_signal(&mut self) {
        self.stop(&Self::own_order(StopCause::AgentStop, "the shim received a signal to stop"));
    }

    /// Checks the cancel request, the deadline and the time without output once. Also reaps
    /// processes and syncs the log.
    pub fn check(&mut self) {
        processes::reap();
        if self.synced.elapsed() >= SYNC_INTERVAL {
            self.synced = Instant::now();
            self.recorder.writer().log().sync();
        }
        if let Some(order) = CancelOrder::of(&self.dir) {
            self.stop(&order);
        }
        if self.cause.is_none() && host::uptime_ms() >= self.deadline_uptime_ms {
            self.stop(&Self::own_order(StopCause::Deadline, "the deadline has passed"));
        }
        let silence = self.recorder.writer().log().time_since_output();
        if self.cause.is_none() && self.no_output.is_some_and(|limit| silence >= limit) {
            self.stop(&Self::own_order(
                StopCause::NoOutput,
                "the job wrote no output for longer than its limit",
            ));
        }
        if self.forced_at.is_some_and(|at| Instant::now() >= at)
            && !self.cancel.forced.is_cancelled()
        {
            self.recorder.writer().write_shim_record("the grace period is over: SIGKILL");
            self.cancel.forced.cancel();
        }
    }

    fn own_order(cause: StopCause, reason: &str) -> CancelOrder {
        CancelOrder { reason: reason.into(), grace_ms: None, cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_limited_for_the_command_and_its_children() {
        assert!(wrapper(&Limits { memory_bytes: None, output_bytes: 1 }).is_empty());
        let limited = wrapper(&Limits { memory_bytes: Some(1 << 30), output_bytes: 1 });
        let output = std::process::Command::new(&limited[0])
            .args(&limited[1..])
            .args(["sh", "-c", "ulimit -v"])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), "1048576");
    }
}
