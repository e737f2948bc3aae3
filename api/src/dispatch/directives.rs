//! Directives to runners. Each directive is queued until the runner acknowledges it, and wakes a
//! waiting long poll.
use domain::ids::{JobId, RunnerId};
use schemas::runner::Directive;

use super::{
    convert,
    outbox::DirectiveSubject,
    session::{Session, Wake},
    state::DispatchState,
};

impl DispatchState {
    /// Queues a directive for a runner and wakes its long poll. Returns false if the directive is
    /// not new, or if the runner has no session on this server.
    pub(crate) fn send(
        &mut self,
        runner: RunnerId,
        about: DirectiveSubject,
        directive: Directive,
    ) -> bool {
        let session = self.runners.get_mut(runner).and_then(|known| known.session.as_mut());
        session.is_some_and(|session| {
            let is_new = session.outbox.push(about, directive);
            if is_new {
                session.wake(Wake::Directive);
            }
            is_new
        })
    }

    /// Sends a cancellation to the runner that holds the job.
    pub(crate) fn send_cancel(&mut self, job: JobId) {
        let Some(tracked) = self.jobs.get(job) else { return };
        let (Some(held), Some(pending)) =
            (tracked.execution(), convert::pending_cancel(&tracked.job))
        else {
            return;
        };
        let (execution, runner) = (held.id, held.runner);
        let directive = Directive::Cancel {
            job,
            execution,
            reason: pending.reason,
            grace_s: pending.grace_s,
            force: pending.force,
        };
        self.send(runner, DirectiveSubject::Cancel(execution, pending.force), directive);
    }

    /// Adds or removes a reader of a job's log.
    pub(crate) fn set_log_reader(&mut self, job: JobId, is_reading: bool) {
        let before = self.readers.get(&job).copied().unwrap_or_default();
        let after = if is_reading { before.saturating_add(1) } else { before.saturating_sub(1) };
        if after == 0 {
            self.readers.remove(&job);
        } else {
            self.readers.insert(job, after);
        }
        if (before == 0) != (after == 0) {
            self.send_tail(job);
        }
    }

    /// Notifies the runner of a job that the job's log has readers, or has none any more.
    pub(super) fn send_tail(&mut self, job: JobId) {
        let runner =
            self.jobs.get(job).and_then(|tracked| Some(tracked.active_execution()?.runner));
        let Some(runner) = runner else { return };
        if let Some(session) = self.runners.get_mut(runner).and_then(|known| known.session.as_mut())
        {
            session.outbox.withdraw(DirectiveSubject::Tail(job));
        }
        let on = self.readers.contains_key(&job);
        self.send(runner, DirectiveSubject::Tail(job), Directive::Tail { job, on });
    }
}

/// Requests a new identity key from the runner of a session, or withdraws the request if
/// `requested` is false.
pub(super) fn send_rekey(session: &mut Session, requested: bool) {
    if !requested {
        session.outbox.withdraw(DirectiveSubject::Rekey);
    } else if session.outbox.push(DirectiveSubject::Rekey, Directive::Rekey) {
        session.wake(Wake::Directive);
    }
}

/// Notifies a session that its runner was drained or resumed.
pub(super) fn send_intake(session: &mut Session, drained: bool) {
    let directive = if drained {
        Directive::Drain { reason: "the runner was drained on the control plane".into() }
    } else {
        Directive::Resume
    };
    // Sends only changes, because a runner that was never drained needs no resume.
    let changed = session.drained != drained;
    session.drained = drained;
    if changed {
        session.outbox.withdraw(DirectiveSubject::Intake);
        session.outbox.push(DirectiveSubject::Intake, directive);
        session.wake(Wake::Directive);
    }
}
