//! What the host asks of the agent.
//!
//! | signal | meaning |
//! |---|---|
//! | SIGTERM, SIGINT | take nothing new, finish, end; a server that is gone is not waited for |
//! | SIGINT again, SIGQUIT | stop every child, tell the server, end |
//! | SIGTERM again, SIGHUP | end now and let the jobs go on: the next agent finds them |
use std::io;

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tracing::info;

/// How much of an end is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stopping {
    /// None.
    No,
    /// When what runs is done.
    Drain,
    /// After stopping what runs.
    StopJobs,
    /// Now, and what runs goes on.
    Leave,
}

/// Listen from now on.
pub fn listen() -> io::Result<watch::Receiver<Stopping>> {
    let (sender, receiver) = watch::channel(Stopping::No);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut quit = signal(SignalKind::quit())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        let (mut terminations, mut interrupts) = (0, 0);
        loop {
            let wanted = tokio::select! {
                _signal = terminate.recv() => {
                    terminations += 1;
                    if terminations > 1 { Stopping::Leave } else { Stopping::Drain }
                }
                _signal = interrupt.recv() => {
                    interrupts += 1;
                    if interrupts > 1 { Stopping::StopJobs } else { Stopping::Drain }
                }
                _signal = quit.recv() => Stopping::StopJobs,
                _signal = hang_up.recv() => Stopping::Leave,
            };
            match wanted {
                Stopping::No => {}
                Stopping::Drain => info!("Draining: nothing new is taken, what runs is finished"),
                Stopping::StopJobs => info!("Stopping every job"),
                Stopping::Leave => info!("Leaving: what runs goes on without this agent"),
            }
            let more = |held: &mut Stopping| {
                let grows = wanted > *held;
                *held = wanted.max(*held);
                grows
            };
            sender.send_if_modified(more);
        }
    });
    Ok(receiver)
}
