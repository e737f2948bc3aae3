//! The pipes to a plugin executable: one call at a time, limits on everything, and a way to stop it.

use std::{
    collections::BTreeMap, future::pending, os::unix::process::ExitStatusExt, path::PathBuf,
    process::ExitStatus, time::Duration,
};

use nix::sys::signal::Signal;
use serde::de::DeserializeOwned;
use tokio::{
    io::AsyncWriteExt,
    process::{Child, ChildStderr, ChildStdin, ChildStdout},
    time::{Instant, sleep_until},
};

use super::protocol::{Call, Code, Message, Request};
use crate::plugins::{
    contract::{PluginError, Sink, Stream},
    lines::Lines,
    plugin::{Doing, Halt, Work},
    process::{self, Group, Input, Spec},
};

/// The largest message, either way.
const MESSAGE_LIMIT: usize = 1 << 20;
/// With the runner's own phases this stays below what a job may have.
const PHASES: usize = 50;
/// How long a plugin may take to leave when its input is closed.
const LEAVE: Duration = Duration::from_secs(5);

pub(super) struct Channel {
    child: Child,
    group: Group,
    to: Option<ChildStdin>,
    from: Lines<ChildStdout>,
    complaints: Lines<ChildStderr>,
    last: u64,
    phases: usize,
}

impl Channel {
    pub(super) async fn open(
        program: PathBuf,
        work: &Work<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Self, Halt> {
        let (args, env) = (Vec::new(), BTreeMap::new());
        let dir = work.job.work_dir.clone();
        let spec = Spec { program, args, dir, env, stop: Signal::SIGTERM, limit: None };
        let (mut child, group) = process::spawn(&spec, work, Input::Pipe, sink).await?;
        let (Some(from), Some(complaints)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(PluginError::PluginFailed("it has no pipes".into()).into());
        };
        let to = child.stdin.take();
        let from = Lines::new(from, MESSAGE_LIMIT);
        let complaints = Lines::new(complaints, MESSAGE_LIMIT);
        Ok(Channel { child, group, to, from, complaints, last: 0, phases: 0 })
    }

    /// One call and its answer. Log lines and phases on the way go to the sink.
    pub(super) async fn ask<T: DeserializeOwned>(
        &mut self,
        call: Call<'_>,
        limit: Option<Duration>,
        work: &Work<'_>,
        sink: &mut dyn Sink,
    ) -> Result<T, Halt> {
        let (word, started) = (call.word(), Instant::now());
        let id = self.send(call).await?;
        let cancel = work.job.cancel.clone();
        let mut kill_at: Option<Instant> = None;
        loop {
            let too_late = limit.map(|limit| started + limit);
            tokio::select! {
                line = self.from.next() => {
                    let Some(line) = line else {
                        return Err(self.gone(word, kill_at.is_some(), sink).await);
                    };
                    if line.cut {
                        let failed = format!("a message is larger than {MESSAGE_LIMIT} bytes");
                        return Err(PluginError::PluginFailed(failed).into());
                    }
                    if let Some(answer) = self.hear(&line.bytes, id, word, sink)? {
                        return serde_json::from_value(answer).map_err(|e| {
                            let failed = format!("its answer to {word} is not understood: {e}");
                            PluginError::PluginFailed(failed).into()
                        });
                    }
                }
                line = self.complaints.next(), if !self.complaints.is_done() => {
                    if let Some(line) = line { sink.line(Stream::Err, &line.bytes); }
                }
                () = cancel.asked.cancelled(), if kill_at.is_none() => {
                    sink.line(Stream::Runner, b"stopping: the plugin is asked to cancel");
                    kill_at = Some(Instant::now() + work.grace());
                    // One that has gone is noticed by its silence.
                    let _heard = self.send(Call::Cancel { of: id }).await;
                }
                () = cancel.forced.cancelled() => {
                    self.group.signal(Signal::SIGKILL);
                    return Err(Halt::cancelled(true));
                }
                () = at(kill_at) => {
                    sink.line(Stream::Runner, b"stopping: SIGKILL, the grace is over");
                    self.group.signal(Signal::SIGKILL);
                    return Err(Halt::cancelled(true));
                }
                () = at(too_late) => {
                    let seconds = limit.unwrap_or_default().as_secs();
                    let late = format!("the plugin did not answer {word} within {seconds} s");
                    return Err(PluginError::TimedOut(late).into());
                }
            }
        }
    }

    /// Close its input; whoever does not leave then is made to.
    pub(super) async fn close(mut self, sink: &mut dyn Sink) {
        self.to = None;
        self.last_words(sink).await;
    }

    /// What it still complains about, until it has left or had its time.
    async fn last_words(&mut self, sink: &mut dyn Sink) -> Option<ExitStatus> {
        let until = Instant::now() + LEAVE;
        let mut left = None;
        while left.is_none() || !self.complaints.is_done() {
            tokio::select! {
                line = self.complaints.next(), if !self.complaints.is_done() => {
                    if let Some(line) = line { sink.line(Stream::Err, &line.bytes); }
                }
                status = self.child.wait(), if left.is_none() => {
                    left = Some(status.ok());
                    // Whoever it left behind holds the pipe.
                    self.group.signal(Signal::SIGKILL);
                }
                () = sleep_until(until) => break,
            }
        }
        left.flatten()
    }

    async fn send(&mut self, call: Call<'_>) -> Result<u64, Halt> {
        self.last += 1;
        let (id, word) = (self.last, call.word());
        let mut line = serde_json::to_vec(&Request { id, call })
            .map_err(std::io::Error::from)
            .doing(|| format!("cannot write the call {word}"))?;
        line.push(b'\n');
        if line.len() > MESSAGE_LIMIT {
            let refusal = format!("the call {word} is larger than {MESSAGE_LIMIT} bytes");
            return Err(PluginError::Refused(refusal).into());
        }
        if let Some(to) = &mut self.to {
            // A plugin that has ended cannot be written to; reading says how it ended.
            let _ended = tokio::time::timeout(LEAVE, to.write_all(&line)).await;
        }
        Ok(id)
    }

    /// A message that ends the call is an answer or an error.
    fn hear(
        &mut self,
        line: &[u8],
        call: u64,
        word: &str,
        sink: &mut dyn Sink,
    ) -> Result<Option<serde_json::Value>, Halt> {
        let message: Message = serde_json::from_slice(line)
            .map_err(|e| PluginError::PluginFailed(format!("a message is not understood: {e}")))?;
        match message {
            Message::Result { id, value } if id == call => Ok(Some(value)),
            Message::Error { id, code, message } if id == call => Err(match code {
                Code::Cancelled => Halt::cancelled(false),
                Code::PlanStale => PluginError::PlanStale(message).into(),
                Code::ToolMissing => PluginError::ToolMissing(message).into(),
                Code::Refused => PluginError::Refused(message).into(),
                Code::Failed => PluginError::PluginFailed(format!("{word}: {message}")).into(),
            }),
            // The answer to a cancel, which came after what it was to cancel.
            Message::Result { .. } | Message::Error { .. } => Ok(None),
            Message::Log { line } => {
                line.lines().for_each(|line| sink.line(Stream::Out, line.as_bytes()));
                Ok(None)
            }
            Message::Progress { phase } => {
                if self.phases < PHASES {
                    self.phases += 1;
                    sink.phase(&phase.chars().take(120).collect::<String>());
                }
                Ok(None)
            }
        }
    }

    /// It closed its output before it answered.
    async fn gone(&mut self, word: &str, cancelled: bool, sink: &mut dyn Sink) -> Halt {
        let status = self.last_words(sink).await;
        if cancelled {
            return Halt::cancelled(false);
        }
        if let Some(number) = status.and_then(|status| status.signal()) {
            return Halt::signal(number, format!("the plugin was ended by signal {number}"));
        }
        let how = status.map_or("its output closed".into(), |status| status.to_string());
        PluginError::PluginFailed(format!("it ended before it answered {word}: {how}")).into()
    }
}

/// Never, if there is no such moment.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}
