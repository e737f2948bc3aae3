//! Runs a child in its own process group: reads its output, waits for its end, and stops it.

use std::{
    collections::BTreeMap, ffi::OsString, os::fd::AsRawFd as _, path::PathBuf, process::Stdio,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, Command},
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use super::{
    contract::{PluginError, Sink, Stream},
    lines::Lines,
    plugin::{Halt, IoContext, Work},
};
use crate::{
    host::Process,
    isolation::{self, EndOfProgram, ProgramEnd},
    journal::Stop,
    processes,
};

/// Longest line in bytes. Longer ones are split.
pub(crate) const LINE_LIMIT: usize = 1 << 20;
/// Time to read the pipes of a child after its end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between checks for remaining members of an ended child's group.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Number of retries after `ETXTBSY`: a program that was just written may be open for writing in a
/// child that is being forked.
const BUSY_RETRIES: u32 = 20;

pub(crate) struct ChildSpec {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    pub dir: PathBuf,
    /// Variables in addition to those of the job and the manifest.
    pub env: BTreeMap<String, String>,
    /// Signal that stops the program and lets it save its work.
    pub stop: Signal,
    /// Time limit, if it is shorter than the job's remaining time.
    pub limit: Option<Duration>,
    /// Code that the program runs.
    pub code: Code,
}

/// Origin of the code of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// Code of the job, which runs in the job's sandbox.
    Job,
    /// Only code that belongs to the host. It uses the configuration and keys of the runner's user.
    Host,
}

/// End of a child that no cancel has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildEnd {
    Exit(i32),
    Signal(i32),
    /// The child reached its time limit.
    TimedOut,
}

impl ChildEnd {
    /// Returns an error unless the exit code is 0.
    pub(crate) fn require_success(self, what: &str) -> Result<(), Halt> {
        match self {
            ChildEnd::Exit(0) => Ok(()),
            ended @ (ChildEnd::Exit(_) | ChildEnd::Signal(_) | ChildEnd::TimedOut) => {
                Err(ended.into_failure(what))
            }
        }
    }

    /// Converts the end of a child into the failure of its job.
    pub(crate) fn into_failure(self, what: &str) -> Halt {
        match self {
            ChildEnd::Exit(code) => Halt::exit(code, format!("{what} ended with exit code {code}")),
            ChildEnd::Signal(number) => {
                Halt::signal(number, format!("{what} was ended by signal {number}"))
            }
            ChildEnd::TimedOut => {
                PluginError::TimedOut(format!("{what} reached its time limit")).into()
            }
        }
    }
}

/// Process group of a child. Dropping it kills every member.
pub(crate) struct ProcessGroup {
    id: Pid,
    in_sandbox: bool,
}

impl ProcessGroup {
    /// Sends a signal. A group without members is not an error.
    pub(crate) fn signal(&self, signal: Signal) {
        // 0 would be the group of this process.
        if self.id.as_raw() > 0 {
            let _gone = killpg(self.id, signal);
        }
    }

    /// Sends the stop signal to the group. Returns the members that received the signal, or `None`
    /// if they are unknown.
    fn stop_members(&self, stop: Signal) -> Option<Vec<Process>> {
        let members = self.members().ok();
        self.signal(stop);
        members
    }

    /// Sends the stop signal to members that are not in `signalled`. Returns whether a member may
    /// still run.
    ///
    /// No member gets the signal twice: a second SIGINT makes Terraform abort and lose its state.
    fn stop_new_members(&self, stop: Signal, signalled: &mut Option<Vec<Process>>) -> bool {
        let Ok(members) = self.members() else { return true };
        // The members were unknown, so each of them may have received the signal.
        let Some(signalled) = signalled else { return !members.is_empty() };
        for member in
            members.iter().filter(|member| !signalled.contains(member)).collect::<Vec<_>>()
        {
            member.signal(stop);
            signalled.push(member.clone());
        }
        !members.is_empty()
    }

    fn may_run(&self) -> bool {
        self.members().map_or(true, |members| !members.is_empty())
    }

    /// Returns the members, without the processes of a sandbox that wait for the program and ignore
    /// the signals that stop it.
    fn members(&self) -> std::io::Result<Vec<Process>> {
        let mut members = processes::of_group(self.id.as_raw().unsigned_abs())?;
        if self.in_sandbox {
            members.retain(|member| !isolation::waits_for_program(member.pid));
        }
        Ok(members)
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}

/// Shell script that waits for a line of input before it executes the program. Until then, nothing
/// of the program has run.
const GATE: &str = r#"read -r _ && exec "$0" "$@""#;
/// [`GATE`] for a program without input.
const GATE_WITHOUT_INPUT: &str = r#"read -r _ && exec "$0" "$@" </dev/null"#;

/// Standard input of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    None,
    Pipe,
}

/// Child that was started.
pub(crate) struct Started {
    pub child: Child,
    pub group: ProcessGroup,
    pub end: EndOfProgram,
}

/// Starts a child. Its environment consists of [`Work::environment`] and the variables of the spec.
pub(crate) async fn spawn(
    spec: &ChildSpec,
    work: &Work<'_>,
    input: Input,
    sink: &mut dyn Sink,
) -> Result<Started, Halt> {
    if work.job.cancel.requested.is_cancelled() {
        return Err(Halt::cancelled(false));
    }
    let gate = if input == Input::Pipe { GATE } else { GATE_WITHOUT_INPUT };
    let mut words: Vec<OsString> = vec!["/bin/sh".into(), "-c".into(), gate.into()];
    let name = spec.program.file_name().unwrap_or(spec.program.as_os_str());
    let name = name.to_string_lossy().into_owned();
    let (mut end, mut passed) = (EndOfProgram::without_sandbox(), None);
    if let Some(sandbox) = work.sandbox(spec) {
        let starting = || format!("cannot start {name} in a sandbox");
        let (reader, writer) = isolation::status_pipe().doing(starting)?;
        let number = writer.as_raw_fd();
        words.extend(sandbox.words(&spec.program, &spec.dir, number).doing(starting)?);
        (end, passed) = (reader, Some(writer));
    }
    words.push(spec.program.clone().into_os_string());
    words.extend(spec.args.iter().cloned());
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .current_dir(&spec.dir)
        .env_clear()
        .envs(work.environment())
        .envs(&spec.env)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let mut tries = 0;
    let mut child = loop {
        match processes::spawn_with(&mut command, passed.as_ref()) {
            Ok(child) => break child,
            Err(e) if e.raw_os_error() == Some(nix::libc::ETXTBSY) && tries < BUSY_RETRIES => {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(source) => return Err(PluginError::SpawnFailed { command: name, source }.into()),
        }
    };
    drop(passed);
    let number = child.id().unwrap_or_default();
    let id = Pid::from_raw(i32::try_from(number).unwrap_or_default());
    let group = ProcessGroup { id, in_sandbox: end.is_of_sandbox() };
    let grace_ms = work.manifest.timeouts.grace_ms;
    let stop = Stop { signal: spec.stop.as_str().into(), grace_ms };
    // The program does not run yet, so an error here interrupts nothing.
    sink.child(number, stop)
        .doing(|| format!("cannot start {name}: its process cannot be recorded in the journal"))?;
    open_gate(&mut child, input).await.doing(|| format!("cannot start {name}"))?;
    Ok(Started { child, group, end })
}

async fn open_gate(child: &mut Child, input: Input) -> std::io::Result<()> {
    let opened = match &mut child.stdin {
        Some(stdin) => stdin.write_all(b"\n").await,
        None => Ok(()),
    };
    if input == Input::None {
        child.stdin = None;
    }
    match opened {
        // The child has ended. Its status is read later.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        opened => opened,
    }
}

/// Starts a child and follows it to its end. Passes every line to `each`.
pub(crate) async fn run(
    spec: &ChildSpec,
    work: &Work<'_>,
    sink: &mut dyn Sink,
    each: impl FnMut(&mut dyn Sink, Stream, &[u8]),
) -> Result<ChildEnd, Halt> {
    let started = spawn(spec, work, Input::None, sink).await?;
    follow(started, spec, work, sink, each).await
}

/// Follows a child to its end. A child that exits with 0 has succeeded, even if it was stopped.
pub(crate) async fn follow(
    started: Started,
    spec: &ChildSpec,
    work: &Work<'_>,
    sink: &mut dyn Sink,
    mut each: impl FnMut(&mut dyn Sink, Stream, &[u8]),
) -> Result<ChildEnd, Halt> {
    let Started { mut child, group, end } = started;
    let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(PluginError::PluginFailed("the child has no output pipes".into()).into());
    };
    let (mut out, mut err) = (Lines::new(out, LINE_LIMIT), Lines::new(err, LINE_LIMIT));
    let cancel = &work.job.cancel;
    let mut status: Option<ProgramEnd> = None;
    let (mut stop_requested, mut forced, mut timed_out) = (false, false, false);
    let began = Instant::now();
    let mut deadline = began;
    // `true` after the child has ended, while other members of its group use the rest of its grace
    // period.
    let mut left_behind = false;
    // Members of the group that received the stop signal.
    let mut signalled = Some(Vec::new());
    let mut check = interval(CHECK_INTERVAL);
    check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while status.is_none() || left_behind || !out.is_done() || !err.is_done() {
        // The sandbox has not started its program yet, so the program has not received the signal.
        let starting = end.is_of_sandbox()
            && stop_requested
            && status.is_none()
            && !signalled.iter().flatten().any(isolation::is_program);
        tokio::select! {
            line = out.next(), if !out.is_done() => {
                if let Some(line) = line { each(sink, Stream::Out, &line.bytes); }
            }
            line = err.next(), if !err.is_done() => {
                if let Some(line) = line { each(sink, Stream::Err, &line.bytes); }
            }
            exit = child.wait(), if status.is_none() => {
                let exit = exit.doing(|| "cannot wait for the child process".into())?;
                // If the sandbox was killed, its program may end later.
                status = Some(end.of(exit));
                // Remaining members would outlive the job and may be writing. A shell, for example,
                // stops before the program that it runs.
                left_behind = group.may_run();
                if !left_behind {
                    deadline = Instant::now() + DRAIN_TIMEOUT;
                } else if !stop_requested {
                    deadline = Instant::now() + work.grace();
                    signalled = group.stop_members(spec.stop);
                }
            }
            _ = check.tick(), if left_behind || starting => {
                // A member that started after the signal has not received it, for example a
                // provisioner that Terraform was about to start.
                let are_left = group.stop_new_members(spec.stop, &mut signalled);
                if left_behind && !are_left {
                    left_behind = false;
                    deadline = Instant::now() + DRAIN_TIMEOUT;
                }
            }
            () = cancel.requested.cancelled(), if !stop_requested && status.is_none() => {
                stop_requested = true;
                deadline = Instant::now() + work.grace();
                sink.line(Stream::Runner, format!("stopping: {}", spec.stop).as_bytes());
                signalled = group.stop_members(spec.stop);
            }
            () = sleep_until(began + spec.limit.unwrap_or_default()),
                if spec.limit.is_some() && !stop_requested && status.is_none() =>
            {
                (stop_requested, timed_out) = (true, true);
                deadline = Instant::now() + work.grace();
                sink.line(Stream::Runner, format!("time limit reached: {}", spec.stop).as_bytes());
                signalled = group.stop_members(spec.stop);
            }
            () = cancel.forced.cancelled(), if !forced && (status.is_none() || left_behind) => {
                forced = true;
                group.signal(Signal::SIGKILL);
            }
            () = sleep_until(deadline), if status.is_some() || (stop_requested && !forced) => {
                if left_behind {
                    forced |= stop_requested;
                    group.signal(Signal::SIGKILL);
                    left_behind = false;
                    deadline = Instant::now() + DRAIN_TIMEOUT;
                    continue;
                }
                if status.is_some() { break; }
                forced = true;
                sink.line(Stream::Runner, b"stopping: SIGKILL, the grace period is over");
                group.signal(Signal::SIGKILL);
            }
        }
    }
    match status {
        _ if timed_out && !cancel.requested.is_cancelled() => Ok(ChildEnd::TimedOut),
        Some(ProgramEnd::Exit(0)) => Ok(ChildEnd::Exit(0)),
        _ if stop_requested || forced => Err(Halt::cancelled(forced)),
        Some(ProgramEnd::Exit(code)) => Ok(ChildEnd::Exit(code)),
        Some(ProgramEnd::Signal(number)) => Ok(ChildEnd::Signal(number)),
        Some(ProgramEnd::NotStarted) => Err(not_started(spec).into()),
        None => {
            Err(PluginError::PluginFailed("the exit status of the child is unknown".into()).into())
        }
    }
}

/// Returns the error of a sandbox that ended before it started its program.
fn not_started(spec: &ChildSpec) -> PluginError {
    let command = format!("{} in a sandbox", spec.program.display());
    let why = "the sandbox failed before it started the program, so the program did not run; the log contains its message";
    PluginError::SpawnFailed { command, source: std::io::Error::other(why) }
}
