//! Every wait of the Runner API in one place, so that tests can shorten all of them.
use std::time::Duration;

/// How long the server waits for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// The longest that an idle poll is parked.
    pub wait: Duration,
    /// Silence after which an execution is shown as suspect.
    pub suspect: Duration,
    /// Silence after which it is disconnected: an event. Also what runners are told as their lease.
    pub lease: Duration,
    /// Silence after which pure work is given up.
    pub lost: Duration,
    /// What every execution gets on top of a full lease when a server takes it over.
    pub takeover: Duration,
    /// How long after its deadline an execution that still talks may take to stop.
    pub overtime: Duration,
    /// How long after its deadline a silent execution is waited for.
    pub overtime_silent: Duration,
    /// How long an offer stands.
    pub offer: Duration,
    /// How long after its grace a cancel may stay unconfirmed.
    pub cancel_confirm: Duration,
    /// Silence after which a runner is disconnected.
    pub runner_silent: Duration,
    /// How long after the end of an execution its log may be incomplete.
    pub seal: Duration,
    /// How often the clockwork looks.
    pub tick: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            wait: Duration::from_secs(50),
            suspect: Duration::from_secs(45),
            lease: Duration::from_secs(60),
            lost: Duration::from_secs(180),
            takeover: Duration::from_secs(30),
            overtime: Duration::from_secs(600),
            overtime_silent: Duration::from_secs(60),
            offer: Duration::from_secs(15),
            cancel_confirm: Duration::from_secs(60),
            runner_silent: Duration::from_secs(180),
            seal: Duration::from_secs(600),
            tick: Duration::from_secs(1),
        }
    }
}

impl Timing {
    /// The same ladder `factor` times faster: what takes 60 s takes 60 s / `factor`.
    pub fn faster(factor: u32) -> Self {
        let Timing {
            wait,
            suspect,
            lease,
            lost,
            takeover,
            overtime,
            overtime_silent,
            offer,
            cancel_confirm,
            runner_silent,
            seal,
            tick,
        } = Timing::default();
        let factor = factor.max(1);
        Timing {
            wait: wait / factor,
            suspect: suspect / factor,
            lease: lease / factor,
            lost: lost / factor,
            takeover: takeover / factor,
            overtime: overtime / factor,
            overtime_silent: overtime_silent / factor,
            offer: offer / factor,
            cancel_confirm: cancel_confirm / factor,
            runner_silent: runner_silent / factor,
            seal: seal / factor,
            tick: tick / factor,
        }
    }

    /// How long a poll of a runner with running executions may be parked: often enough for its
    /// leases.
    pub fn wait_busy(&self) -> Duration {
        self.wait.min(self.lease / 3)
    }
}
