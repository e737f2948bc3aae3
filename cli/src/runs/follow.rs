//! `stead runs approve --follow`: approves the plans of a run as they become ready, until the run
//! ends.
use std::{collections::HashSet, io::IsTerminal as _, os::fd::AsFd};

use crate::client::ClientError;
use domain::{
    digest::Digest,
    ids::{RunId, StepId},
};
use nix::sys::termios::{FlushArg, tcflush};
use schemas::control::runs::{ApproveRun, Run, Step};
use tokio::sync::oneshot;

use super::{
    decide::{groups, prompt},
    plans::{self, DetailsMode},
    watch::{self, Hints},
};
use crate::{
    failure::Failure,
    render::{Output, write},
    settings::CommandContext,
};

pub(crate) struct Follow {
    pub(crate) reason: String,
    /// Approves each plan without a prompt.
    pub(crate) all: bool,
    pub(crate) details: Option<DetailsMode>,
}

/// Follows a run and approves each plan that waits. The command ends with the result of the run.
/// Ctrl-C ends only the command.
pub(crate) async fn approve(
    context: &CommandContext,
    text: &str,
    args: Follow,
) -> Result<(), Failure> {
    let asks = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !args.all && !asks {
        return Err(Failure::Usage(
            "cannot prompt for approval: no terminal\n  try: --all approves each plan of the run without a prompt"
                .into(),
        ));
    }
    let run = watch::first(context, text).await?;
    let mut decided = HashSet::new();
    // This command prompts for each approval itself, so hints to approve would be confusing.
    let followed = watch::follow(context, run, Hints::Hide, async |now: &Run| {
        decide(context, now, &args, &mut decided).await.map(|()| false)
    });
    tokio::select! {
        ended = followed => ended,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            Err(Failure::Interrupted(format!(
                "stopped following {run}; the run continues\n  try: `stead runs approve {run} --follow --reason …` to resume"
            )))
        }
    }
}

/// Approves each waiting plan that this command has not handled yet, after a prompt unless `all` is
/// set.
async fn decide(
    context: &CommandContext,
    run: &Run,
    args: &Follow,
    decided: &mut HashSet<(StepId, Digest)>,
) -> Result<(), Failure> {
    if run.awaits_plans {
        return Ok(());
    }
    let waiting = run.dag.iter().filter(|step| step.state == "waiting_for_approval");
    let mut plans: Vec<(&Step, Digest)> =
        waiting.filter_map(|step| Some((step, step.plan.as_ref()?.digest.clone()))).collect();
    plans.retain(|(step, digest)| decided.insert((step.id, digest.clone())));
    for group in groups(run, plans) {
        let is_confirmed = confirmed(context, run, &group, args).await?;
        for (step, digest) in group {
            if is_confirmed {
                send_approval(context, run.run.id, step, digest, &args.reason).await?;
                continue;
            }
            let (id, name) = (run.run.id, &step.name);
            context.screen.remark(&format!(
                "Not approved: {name}. Its plan still waits; to deny the plan: stead runs deny {id} --step {name} --reason …"
            ));
        }
    }
    Ok(())
}

async fn send_approval(
    context: &CommandContext,
    run: RunId,
    step: &Step,
    digest: Digest,
    reason: &str,
) -> Result<(), Failure> {
    let approval = ApproveRun { step: step.id, digest: digest.clone(), reason: reason.to_owned() };
    match context.client.approve(run, &approval).await {
        Ok(_) => match context.screen.output {
            Output::Table => write(&format!("{} approved: plan {digest}\n", step.name)),
            // JSON output contains only the steps, and the run at its end.
            Output::Json | Output::Ndjson => Ok(()),
        },
        // Another user decided first, or the step was planned again. The next poll returns the
        // current plan.
        Err(ClientError::Problem(problem)) if problem.status == 409 => {
            context.screen.remark(&format!("{} was not approved: {}", step.name, problem.detail));
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Shows the plans, and asks for confirmation unless `all` is set.
async fn confirmed(
    context: &CommandContext,
    run: &Run,
    waiting: &[(&Step, Digest)],
    args: &Follow,
) -> Result<bool, Failure> {
    let shows = context.screen.output == Output::Table && !context.screen.is_quiet();
    for (step, digest) in waiting.iter().filter(|_| shows || !args.all) {
        let plan = plans::text(context, (run.run.id, step), args.details).await?;
        write(&format!("{plan}  plan {digest}\n"))?;
    }
    if args.all {
        return Ok(true);
    }
    write(&prompt(run, "Approve", waiting))?;
    discard_typed(std::io::stdin())?;
    let input = line().await?;
    Ok(matches!(input.trim(), "y" | "Y" | "yes"))
}

/// Discards input that the user typed before the prompt, without having seen its plan.
pub(super) fn discard_typed(terminal: impl AsFd) -> std::io::Result<()> {
    Ok(tcflush(terminal, FlushArg::TCIFLUSH)?)
}

/// Reads a line of standard input in its own thread, so that Ctrl-C can end the command meanwhile.
async fn line() -> Result<String, Failure> {
    let (send, receive) = oneshot::channel();
    #[expect(clippy::disallowed_methods, reason = "the receiver notices the end of the thread")]
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = std::io::stdin().read_line(&mut text).map(|_| text);
        // The command may have ended meanwhile.
        let _ = send.send(read);
    });
    let unread = |why: &dyn std::fmt::Display| {
        Failure::Usage(format!("cannot read the confirmation: {why}"))
    };
    let read = receive.await.map_err(|error| unread(&error))?;
    read.map_err(|error| unread(&error))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{BufRead as _, BufReader, Write as _},
    };

    use super::*;

    #[test]
    fn input_typed_before_the_prompt_is_discarded() {
        let terminal = nix::pty::openpty(None, None).unwrap();
        let (mut keyboard, screen) = (File::from(terminal.master), File::from(terminal.slave));
        keyboard.write_all(b"y\ny\n").unwrap();
        discard_typed(&screen).unwrap();
        keyboard.write_all(b"n\n").unwrap();
        let mut input = String::new();
        BufReader::new(screen).read_line(&mut input).unwrap();
        assert_eq!(input, "n\n");
    }
}
