//! Handles the signals that stop the agent.
//!
//! | signal | effect |
//! |---|---|
//! | SIGTERM, SIGINT | accept no jobs, finish running jobs, exit; does not wait for an unreachable server |
//! | second SIGINT, SIGQUIT | stop every child, report to the server, exit |
//! | second SIGTERM, SIGHUP | exit now; jobs continue and the next agent resumes them |
use std::io;

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tracing::info;

use crate::tasks;

/// Stop level that the signals request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopLevel {
    KeepRunning,
    /// Exit when the running jobs have ended.
    Drain,
    /// Stop the running jobs, then exit.
    StopJobs,
    /// Exit now; running jobs continue.
    Detach,
}

/// Installs the signal handlers.
pub fn listen() -> io::Result<watch::Receiver<StopLevel>> {
    let (sender, receiver) = watch::channel(StopLevel::KeepRunning);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut quit = signal(SignalKind::quit())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    tasks::detach("signals", async move {
        let (mut terminations, mut interrupts) = (0, 0);
        loop {
            let requested = tokio::select! {
                _signal = terminate.recv() => {
                    terminations += 1;
                    if terminations > 1 { StopLevel::Detach } else { StopLevel::Drain }
                }
                _signal = interrupt.recv() => {
                    interrupts += 1;
                    if interrupts > 1 { StopLevel::StopJobs } else { StopLevel::Drain }
                }
                _signal = quit.recv() => StopLevel::StopJobs,
                _signal = hang_up.recv() => StopLevel::Detach,
            };
            match requested {
                StopLevel::KeepRunning => {}
                StopLevel::Drain => {
                    info!("Draining: running jobs finish, new jobs are not accepted")
                }
                StopLevel::StopJobs => info!("Stopping every job"),
                StopLevel::Detach => info!("Exiting: running jobs continue without this agent"),
            }
            let raise_level = |level: &mut StopLevel| {
                let is_higher = requested > *level;
                *level = requested.max(*level);
                is_higher
            };
            sender.send_if_modified(raise_level);
        }
    });
    Ok(receiver)
}
