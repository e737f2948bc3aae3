//! Limits of a job: its time, its time without output, its memory and its processes.
use std::time::{Duration, Instant};

use domain::isolation::IsolationLevel;

use super::order::{CancelOrder, JobLimits, StopCause};
use crate::{
    cgroup::{Exceeded, Limiter},
    data::JobDir,
    host,
    plugins::Cancel,
    processes::{self, RunningProcess},
    shim::recorder::Recorder,
};

const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Interval between syncs of the log.
const SYNC_INTERVAL: Duration = Duration::from_millis(200);

/// Grace period of a job that exceeded a limit.
const LIMIT_GRACE: Duration = Duration::from_secs(5);

/// Limit of processes and threads in a sandbox if the policy sets none.
const DEFAULT_PROCESSES: u32 = 4096;

/// Returns the limit of processes if the policy sets none. Only the kernel enforces it.
pub(super) fn default_processes(level: IsolationLevel) -> Option<u32> {
    match level {
        // The policies of existing installs have no limit.
        IsolationLevel::Process => None,
        IsolationLevel::Sandbox => Some(DEFAULT_PROCESSES),
    }
}

impl From<Exceeded> for StopCause {
    fn from(exceeded: Exceeded) -> Self {
        match exceeded {
            Exceeded::Memory => StopCause::Memory,
            Exceeded::Processes => StopCause::Processes,
        }
    }
}

/// Describes the limits of a job and what enforces them, for its log.
pub(super) fn text(limits: &JobLimits, limiter: &Limiter) -> String {
    let (mut enforced, mut missing) = (Vec::new(), Vec::new());
    let by = |is_kernel| if is_kernel { "by the kernel" } else { "by checks" };
    let (of_memory, of_processes) = (limiter.limits_memory(), limiter.limits_processes());
    match limits.memory_bytes {
        Some(bytes) => enforced.push(format!("memory {} MiB {}", bytes >> 20, by(of_memory))),
        None => missing.push("memory"),
    }
    match limits.processes.or(of_processes.then_some(DEFAULT_PROCESSES)) {
        Some(most) => enforced.push(format!("processes and threads {most} {}", by(of_processes))),
        None => missing.push("processes"),
    }
    missing.extend(["processor time", "disk"]);
    let enforced = if enforced.is_empty() { "none".into() } else { enforced.join(", ") };
    format!("limits: {enforced}; not enforced: {}", missing.join(", "))
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
    pub limits: JobLimits,
    /// Limits of the kernel.
    limiter: Limiter,
    /// Cause of the first stop request.
    pub cause: Option<StopCause>,
    pub forced_at: Option<Instant>,
    synced: Instant,
}

impl Watch {
    pub(crate) fn new(
        dir: JobDir,
        recorder: Recorder,
        deadline_uptime_ms: u64,
        (grace, max_grace): (Duration, Duration),
        no_output: Option<Duration>,
        (limits, limiter): (JobLimits, Limiter),
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
            limits,
            limiter,
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
        if self.cause.is_none() {
            self.check_limits();
        }
        if self.forced_at.is_some_and(|at| Instant::now() >= at)
            && !self.cancel.forced.is_cancelled()
        {
            self.recorder.writer().write_shim_record("the grace period is over: SIGKILL");
            self.cancel.forced.cancel();
        }
    }

    /// Stops the job if its processes exceed a limit together. Without a limit, lists no processes.
    fn check_limits(&mut self) {
        let grace = u64::try_from(LIMIT_GRACE.as_millis()).ok();
        match self.limiter.exceeded() {
            // The kernel keeps the job within the limit, so its other programs can save their work.
            Some(Exceeded::Memory) => return self.stop_at_limit(StopCause::Memory, None),
            Some(Exceeded::Processes) => return self.stop_at_limit(StopCause::Processes, grace),
            None => {}
        }
        // The kernel counts a page that several processes share once.
        let memory_bytes = self.limits.memory_bytes.filter(|_| !self.limiter.limits_memory());
        let processes = self.limits.processes.filter(|_| !self.limiter.limits_processes());
        if memory_bytes.is_none() && processes.is_none() {
            return;
        }
        let Ok(running) = processes::descendants() else { return };
        let threads: u32 = running.iter().map(RunningProcess::threads).sum();
        if processes.is_some_and(|most| threads > most) {
            self.stop_at_limit(StopCause::Processes, grace);
        } else if memory_bytes.is_some_and(|most| processes::resident_bytes(&running) > most) {
            self.stop_at_limit(StopCause::Memory, grace);
        }
    }

    fn stop_at_limit(&mut self, cause: StopCause, grace_ms: Option<u64>) {
        let reason = cause.limit().unwrap_or_default();
        self.stop(&CancelOrder { grace_ms, ..Self::own_order(cause, reason) });
    }

    fn own_order(cause: StopCause, reason: &str) -> CancelOrder {
        CancelOrder { reason: reason.into(), grace_ms: None, cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_names_what_no_limit_covers() {
        let limits = JobLimits { memory_bytes: Some(4 << 30), processes: Some(100) };
        assert_eq!(
            text(&limits, &Limiter::default()),
            "limits: memory 4096 MiB by checks, processes and threads 100 by checks; not enforced: processor time, disk"
        );
        assert_eq!(
            text(&JobLimits::default(), &Limiter::default()),
            "limits: none; not enforced: memory, processes, processor time, disk"
        );
    }
}
