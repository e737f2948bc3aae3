//! Timeouts and intervals of the Runner API, in one place so that tests can shorten all of them.
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timing {
    /// Longest wait of a long poll.
    pub long_poll: Duration,
    /// Time without contact after which an execution is displayed as suspect.
    pub suspect: Duration,
    /// Time without contact after which an execution is recorded as disconnected. Runners receive
    /// it as their lease.
    pub lease: Duration,
    /// Time without contact after which pure work is declared lost.
    pub lost: Duration,
    /// Additional time beyond a full lease that executions get after a takeover.
    pub takeover: Duration,
    /// Time that a connected execution has to stop after its deadline.
    pub overtime: Duration,
    /// Time that a disconnected execution has after its deadline.
    pub overtime_disconnected: Duration,
    /// Time until an offer expires.
    pub offer: Duration,
    /// Time after the grace period until a cancellation counts as unconfirmed.
    pub cancel_confirm: Duration,
    /// Time without contact after which a runner is recorded as disconnected.
    pub runner_disconnected: Duration,
    /// Time without growth after which the log of an ended execution is finalized as incomplete.
    pub log_quiet: Duration,
    /// Interval between checks of the timeouts.
    pub tick: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            long_poll: Duration::from_secs(50),
            suspect: Duration::from_secs(45),
            lease: Duration::from_secs(60),
            lost: Duration::from_secs(180),
            takeover: Duration::from_secs(30),
            overtime: Duration::from_secs(600),
            overtime_disconnected: Duration::from_secs(60),
            offer: Duration::from_secs(15),
            cancel_confirm: Duration::from_secs(60),
            runner_disconnected: Duration::from_secs(180),
            log_quiet: Duration::from_secs(600),
            tick: Duration::from_secs(1),
        }
    }
}

impl Timing {
    /// Returns the defaults divided by `factor`.
    #[cfg(test)]
    pub(crate) fn faster(factor: u32) -> Self {
        let Timing {
            long_poll: wait,
            suspect,
            lease,
            lost,
            takeover,
            overtime,
            overtime_disconnected: overtime_silent,
            offer,
            cancel_confirm,
            runner_disconnected: runner_silent,
            log_quiet,
            tick,
        } = Timing::default();
        let factor = factor.max(1);
        Timing {
            long_poll: wait / factor,
            suspect: suspect / factor,
            lease: lease / factor,
            lost: lost / factor,
            takeover: takeover / factor,
            overtime: overtime / factor,
            overtime_disconnected: overtime_silent / factor,
            offer: offer / factor,
            cancel_confirm: cancel_confirm / factor,
            runner_disconnected: runner_silent / factor,
            log_quiet: log_quiet / factor,
            tick: tick / factor,
        }
    }

    /// Longest wait of a long poll of a runner with running executions, short enough to renew their
    /// leases.
    pub(crate) fn long_poll_busy(&self) -> Duration {
        self.long_poll.min(self.lease / 3)
    }
}
