//! Channel over the pipes of a plugin executable. The channel carries one call at a time, limits
//! the size of messages, and stops the plugin on a cancel.

use std::{future::pending, path::PathBuf, process::ExitStatus, time::Duration};

use nix::sys::signal::Signal;
use schemas::plugin::{Call, ErrorCode, MESSAGE_LIMIT, Message, Request};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::{
    io::AsyncWriteExt,
    process::{Child, ChildStderr, ChildStdin, ChildStdout},
    time::{Instant, sleep_until},
};

use super::{charts, value_file};
use crate::{
    isolation::{EndOfProgram, ProgramEnd},
    plugins::{
        contract::{PluginError, Sink, Stream},
        lines::Lines,
        plugin::{Halt, IoContext, Work},
        process::{self, ChildSpec, Code, Input, ProcessGroup, Started},
    },
};

/// Largest number of phases that a plugin can report. With the runner's own phases, the total stays
/// below the limit of a job.
const MAX_PHASES: usize = 50;
/// Time for a plugin to exit after its input was closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Channel {
    child: Child,
    group: ProcessGroup,
    end: EndOfProgram,
    stdin: Option<ChildStdin>,
    messages: Lines<ChildStdout>,
    stderr: Lines<ChildStderr>,
    last_id: u64,
    phases: usize,
    /// Protocol version that both sides use.
    version: u32,
}

/// Response to a call, unless the call failed.
enum Response {
    Value(Value),
    /// The plugin does not implement the call. Contains its explanation.
    Unsupported(String),
}

impl Channel {
    pub(super) async fn open(
        program: PathBuf,
        work: &Work<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Self, Halt> {
        let (args, env) = (Vec::new(), charts::access(work));
        let dir = work.job.work_dir.clone();
        let spec = ChildSpec {
            program,
            args,
            dir,
            env,
            stop: Signal::SIGTERM,
            limit: None,
            code: Code::Job,
        };
        let started = process::spawn(&spec, work, Input::Pipe, sink).await?;
        let Started { mut child, group, end } = started;
        let (Some(from), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(PluginError::PluginFailed("it has no output pipes".into()).into());
        };
        let to = child.stdin.take();
        let from = Lines::new(from, MESSAGE_LIMIT);
        let stderr = Lines::new(stderr, MESSAGE_LIMIT);
        Ok(Channel {
            child,
            group,
            end,
            stdin: to,
            messages: from,
            stderr,
            last_id: 0,
            phases: 0,
            version: 1,
        })
    }

    /// Sets the protocol version of all further calls.
    pub(super) fn use_version(&mut self, version: u32) {
        self.version = version;
    }

    pub(super) fn version(&self) -> u32 {
        self.version
    }

    /// Makes one call and returns its result. Log lines and phases go to the sink.
    pub(super) async fn call<T: DeserializeOwned>(
        &mut self,
        call: Call,
        limit: Option<Duration>,
        work: &Work<'_>,
        sink: &mut dyn Sink,
    ) -> Result<T, Halt> {
        let name = call.name();
        match self.exchange(call, limit, work, sink).await? {
            Response::Value(value) => parse(value, name),
            Response::Unsupported(message) => {
                Err(PluginError::PluginFailed(format!("{name}: {message}")).into())
            }
        }
    }

    /// Makes one optional call. Returns `None` if the plugin does not implement it.
    pub(super) async fn call_optional<T: DeserializeOwned>(
        &mut self,
        call: Call,
        limit: Option<Duration>,
        work: &Work<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Option<T>, Halt> {
        let name = call.name();
        match self.exchange(call, limit, work, sink).await? {
            Response::Value(value) => parse(value, name).map(Some),
            Response::Unsupported(_) => Ok(None),
        }
    }

    async fn exchange(
        &mut self,
        call: Call,
        limit: Option<Duration>,
        work: &Work<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Response, Halt> {
        let (name, started) = (call.name(), Instant::now());
        let id = self.send(call).await?;
        let cancel = work.job.cancel.clone();
        let mut kill_at: Option<Instant> = None;
        loop {
            let deadline = limit.map(|limit| started + limit);
            tokio::select! {
                line = self.messages.next() => {
                    let Some(line) = line else {
                        return Err(self.closed_output_failure(name, kill_at.is_some(), sink).await);
                    };
                    if line.cut {
                        let failed = format!("it sent a message of more than {MESSAGE_LIMIT} bytes");
                        return Err(PluginError::PluginFailed(failed).into());
                    }
                    if let Some(response) = self.handle_message(&line.bytes, (id, name), work, sink)? {
                        return Ok(response);
                    }
                }
                line = self.stderr.next(), if !self.stderr.is_done() => {
                    if let Some(line) = line { sink.line(Stream::Err, &line.bytes); }
                }
                () = cancel.requested.cancelled(), if kill_at.is_none() => {
                    sink.line(Stream::Runner, b"stopping: sending a cancel to the plugin");
                    kill_at = Some(Instant::now() + work.grace());
                    // A plugin that has exited is detected when its output closes.
                    let _best_effort = self.send(Call::Cancel { of: id }).await;
                }
                () = cancel.forced.cancelled() => {
                    self.group.signal(Signal::SIGKILL);
                    return Err(Halt::cancelled(true));
                }
                () = sleep_until_some(kill_at) => {
                    sink.line(Stream::Runner, b"stopping: SIGKILL, the grace period is over");
                    self.group.signal(Signal::SIGKILL);
                    return Err(Halt::cancelled(true));
                }
                () = sleep_until_some(deadline) => {
                    let seconds = limit.unwrap_or_default().as_secs();
                    let detail = format!("the plugin did not respond to {name} within {seconds} s");
                    return Err(PluginError::TimedOut(detail).into());
                }
            }
        }
    }

    /// Closes the plugin's input. Kills a plugin that does not exit within [`EXIT_TIMEOUT`].
    pub(super) async fn close(mut self, sink: &mut dyn Sink) {
        self.stdin = None;
        self.drain_stderr(sink).await;
    }

    /// Reads standard error until the plugin has exited or [`EXIT_TIMEOUT`] has passed.
    async fn drain_stderr(&mut self, sink: &mut dyn Sink) -> Option<ExitStatus> {
        let until = Instant::now() + EXIT_TIMEOUT;
        let mut status = None;
        while status.is_none() || !self.stderr.is_done() {
            tokio::select! {
                line = self.stderr.next(), if !self.stderr.is_done() => {
                    if let Some(line) = line { sink.line(Stream::Err, &line.bytes); }
                }
                exit = self.child.wait(), if status.is_none() => {
                    status = Some(exit.ok());
                    // Other members of the plugin's group may still hold the pipe open.
                    self.group.signal(Signal::SIGKILL);
                }
                () = sleep_until(until) => break,
            }
        }
        status.flatten()
    }

    async fn send(&mut self, call: Call) -> Result<u64, Halt> {
        self.last_id += 1;
        let (id, name) = (self.last_id, call.name());
        let mut line = serde_json::to_vec(&Request { id, call })
            .map_err(std::io::Error::from)
            .doing(|| format!("cannot serialize the call {name}"))?;
        line.push(b'\n');
        if line.len() > MESSAGE_LIMIT {
            let refusal = format!(
                "cannot send the call {name} to the plugin: it is larger than {MESSAGE_LIMIT} bytes; reduce the inputs of the component"
            );
            return Err(PluginError::Refused(refusal).into());
        }
        if let Some(to) = &mut self.stdin {
            // The caller detects the end of the plugin when its output closes.
            let _ended = tokio::time::timeout(EXIT_TIMEOUT, to.write_all(&line)).await;
        }
        Ok(id)
    }

    /// Handles one message. Returns the value if the message is the result of `call`.
    fn handle_message(
        &mut self,
        line: &[u8],
        (call, name): (u64, &str),
        work: &Work<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Option<Response>, Halt> {
        let message: Message = serde_json::from_slice(line)
            .map_err(|e| PluginError::PluginFailed(format!("cannot parse a message: {e}")))?;
        match message {
            Message::Result { id, value, value_file: None } if id == call => {
                Ok(Some(Response::Value(value)))
            }
            Message::Result { id, value, value_file: Some(_) }
                if id == call && !value.is_null() =>
            {
                let failed = format!("its response to {name} has both a value and a file");
                Err(PluginError::PluginFailed(failed).into())
            }
            Message::Result { id, value_file: Some(file), .. } if id == call => {
                let value = value_file::read(&file, name, self.version, &work.job.work_dir)?;
                Ok(Some(Response::Value(value)))
            }
            Message::Error { id, code, message } if id == call => Err(match code {
                ErrorCode::Unsupported => return Ok(Some(Response::Unsupported(message))),
                ErrorCode::Cancelled => Halt::cancelled(false),
                ErrorCode::PlanStale => PluginError::PlanStale(message).into(),
                ErrorCode::ToolMissing => PluginError::ToolMissing(message).into(),
                ErrorCode::Refused => PluginError::Refused(message).into(),
                ErrorCode::Failed => PluginError::PluginFailed(format!("{name}: {message}")).into(),
            }),
            // Late response, for example to a cancel that arrived after the end of the call.
            Message::Result { .. } | Message::Error { .. } => Ok(None),
            Message::Log { line } => {
                line.lines().for_each(|line| sink.line(Stream::Out, line.as_bytes()));
                Ok(None)
            }
            Message::Progress { phase } => {
                if self.phases < MAX_PHASES {
                    self.phases += 1;
                    sink.phase(&phase.chars().take(120).collect::<String>());
                }
                Ok(None)
            }
        }
    }

    /// Returns the failure of a plugin that closed its output before it responded.
    async fn closed_output_failure(
        &mut self,
        name: &str,
        cancelled: bool,
        sink: &mut dyn Sink,
    ) -> Halt {
        let status = self.drain_stderr(sink).await;
        if cancelled {
            return Halt::cancelled(false);
        }
        let how = match status.map(|status| self.end.of(status)) {
            Some(ProgramEnd::Signal(number)) => {
                return Halt::signal(number, format!("the plugin was ended by signal {number}"));
            }
            Some(ProgramEnd::Exit(code)) => format!("exit status: {code}"),
            Some(ProgramEnd::NotStarted) => {
                "the sandbox failed before it started the plugin".to_owned()
            }
            None => "its output closed".to_owned(),
        };
        PluginError::PluginFailed(format!("it ended before it responded to {name}: {how}")).into()
    }
}

fn parse<T: DeserializeOwned>(value: Value, name: &str) -> Result<T, Halt> {
    serde_json::from_value(value).map_err(|e| {
        let failed = format!("cannot parse its response to {name}: {e}");
        PluginError::PluginFailed(failed).into()
    })
}

/// Waits until this moment, or indefinitely if there is none.
async fn sleep_until_some(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}
