//! End of a program in a sandbox, as `sandbox-start` reports it through a pipe.
//!
//! The exit code of bubblewrap alone is ambiguous: it is also that of a failed mount, and 137 is
//! both an exit code and signal 9.
use std::{
    cell::OnceCell,
    io::{self, PipeReader, PipeWriter, Read as _, pipe},
    os::unix::process::ExitStatusExt as _,
    process::ExitStatus,
};

use nix::{sys::signal::Signal, sys::wait::WaitStatus};
use rustix::io::ioctl_fionbio;

use crate::{host::Process, processes};

/// First byte of the report: `sandbox-start` runs, so the sandbox is complete.
pub(super) const STARTED: u8 = b's';
/// Kinds of ends, before a number in decimal digits.
const EXITED: char = 'e';
const KILLED: char = 'k';
/// Longest report in bytes.
const LONGEST: u64 = 64;

/// End of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgramEnd {
    Exit(i32),
    Signal(i32),
    /// The sandbox ended before it started the program.
    NotStarted,
}

/// Source of the end of one program.
#[derive(Debug)]
pub(crate) struct EndOfProgram(Option<Report>);

#[derive(Debug)]
struct Report {
    pipe: PipeReader,
    text: OnceCell<Vec<u8>>,
}

/// Returns a pipe through which a sandbox reports. The sandbox inherits the second end.
pub(crate) fn status_pipe() -> io::Result<(EndOfProgram, PipeWriter)> {
    let (pipe, writer) = pipe()?;
    // A process that survives bubblewrap may hold the other end.
    ioctl_fionbio(&pipe, true)?;
    Ok((EndOfProgram(Some(Report { pipe, text: OnceCell::new() })), writer))
}

impl EndOfProgram {
    /// Returns the source for a child that is the program itself.
    pub(crate) fn without_sandbox() -> Self {
        EndOfProgram(None)
    }

    pub(crate) fn is_of_sandbox(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the end of the program whose child ended with this status.
    pub(crate) fn of(&self, status: ExitStatus) -> ProgramEnd {
        match &self.0 {
            None => of_child(status),
            Some(report) => of_report(report.text(), status),
        }
    }
}

impl Report {
    fn text(&self) -> &[u8] {
        self.text.get_or_init(|| {
            let mut text = Vec::new();
            // What was read before an error counts.
            let _incomplete = (&self.pipe).take(LONGEST).read_to_end(&mut text);
            text
        })
    }
}

fn of_child(status: ExitStatus) -> ProgramEnd {
    match (status.code(), status.signal()) {
        (Some(code), _) => ProgramEnd::Exit(code),
        (None, signal) => ProgramEnd::Signal(signal.unwrap_or_default()),
    }
}

fn of_report(report: &[u8], status: ExitStatus) -> ProgramEnd {
    let Some(end) = report.strip_prefix(&[STARTED]) else { return ProgramEnd::NotStarted };
    let end = std::str::from_utf8(end).unwrap_or_default();
    let number = |kind| end.strip_prefix(kind)?.parse::<i32>().ok();
    match (number(EXITED), number(KILLED)) {
        (Some(code), _) => ProgramEnd::Exit(code),
        (None, Some(signal)) => ProgramEnd::Signal(signal),
        // The sandbox was killed while its program ran.
        (None, None) => match of_child(status) {
            ProgramEnd::Exit(_) | ProgramEnd::NotStarted => {
                ProgramEnd::Signal(Signal::SIGKILL as i32)
            }
            killed @ ProgramEnd::Signal(_) => killed,
        },
    }
}

/// Formats the end of the program for the report, and returns the exit code for bubblewrap.
pub(super) fn report(ended: &WaitStatus) -> Option<(String, u8)> {
    match *ended {
        WaitStatus::Exited(_, code) => {
            Some((format!("{EXITED}{code}"), u8::try_from(code).unwrap_or(u8::MAX)))
        }
        WaitStatus::Signaled(_, signal, _) => {
            let number = signal as i32;
            Some((format!("{KILLED}{number}"), u8::try_from(128 + number).unwrap_or(u8::MAX)))
        }
        WaitStatus::Stopped(..)
        | WaitStatus::PtraceEvent(..)
        | WaitStatus::PtraceSyscall(_)
        | WaitStatus::Continued(_)
        | WaitStatus::StillAlive => None,
    }
}

/// Returns whether a process of a sandbox waits for its program: the first process of bubblewrap,
/// or `sandbox-start`.
pub(crate) fn waits_for_program(pid: u32) -> bool {
    matches!(processes::inner_pid(pid), Some(1 | 2))
}

/// Returns whether a process is the program of a sandbox, or becomes that program.
pub(crate) fn is_program(process: &Process) -> bool {
    processes::inner_pid(process.pid) == Some(3)
}

#[cfg(test)]
mod tests {
    use nix::unistd::Pid;

    use super::*;

    #[test]
    fn the_report_tells_apart_what_the_exit_code_of_bubblewrap_does_not() {
        let status = ExitStatus::from_raw;
        let cases: [(&[u8], _, _); 7] = [
            (b"", status(1 << 8), ProgramEnd::NotStarted),
            (b"", status(9), ProgramEnd::NotStarted),
            (b"se0", status(0), ProgramEnd::Exit(0)),
            (b"se137", status(137 << 8), ProgramEnd::Exit(137)),
            (b"sk9", status(137 << 8), ProgramEnd::Signal(9)),
            (b"s", status(9), ProgramEnd::Signal(9)),
            (b"s", status(0), ProgramEnd::Signal(9)),
        ];
        for (report, status, expected) in cases {
            assert_eq!(of_report(report, status), expected, "{report:?} {status:?}");
        }
    }

    #[test]
    fn a_report_is_read_back() {
        let pid = Pid::from_raw(1);
        let cases = [
            (WaitStatus::Exited(pid, 130), ("e130", 130)),
            (WaitStatus::Signaled(pid, Signal::SIGTERM, false), ("k15", 143)),
        ];
        for (ended, (text, code)) in cases {
            assert_eq!(report(&ended), Some((text.to_owned(), code)));
        }
    }
}
