//! Steps between the shim and a program in a sandbox: `sandbox-enter`, `sandbox-start` and
//! `sandbox-run`. Step between the shim and pasta: `sandbox-connect`.
//!
//! The signals that stop a program are blocked in between. bubblewrap would end at such a signal,
//! and the program would be killed before it saved its work. A signal that arrives meanwhile stays
//! pending and takes effect when the program starts.
use std::{
    ffi::OsString,
    fs::File,
    io::{self, Write as _},
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode},
};

use anyhow::Context as _;
use nix::{
    errno::Errno,
    sched::{CloneFlags, setns},
    sys::{
        prctl::set_pdeathsig,
        signal::{SigSet, Signal},
        wait::waitpid,
    },
    unistd::{Pid, close, getppid},
};

use super::status;

/// Signals that stop a program gracefully.
const STOPS: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

fn stops() -> SigSet {
    STOPS.into_iter().collect()
}

/// Joins the network of a job, which this process holds, and executes bubblewrap.
pub(crate) fn enter(network: Option<u32>, command: &[OsString]) -> anyhow::Result<ExitCode> {
    stops().thread_block().context("cannot block signals")?;
    if let Some(holder) = network {
        let open = |kind: &str| File::open(format!("/proc/{holder}/ns/{kind}"));
        let context = "cannot join the network of the job";
        let (user, net) = (open("user").context(context)?, open("net").context(context)?);
        setns(user, CloneFlags::CLONE_NEWUSER).context(context)?;
        setns(net, CloneFlags::CLONE_NEWNET).context(context)?;
    }
    execute(command)
}

/// Executes pasta. The kernel ends it together with its parent.
pub(crate) fn connect(parent: u32, command: &[OsString]) -> anyhow::Result<ExitCode> {
    set_pdeathsig(Signal::SIGKILL).context("cannot tie pasta to its parent")?;
    // The parent may have ended before.
    anyhow::ensure!(getppid().as_raw().unsigned_abs() == parent, "the parent of pasta has ended");
    execute(command)
}

/// Starts the program of a job, inside the sandbox, and reports its end through the pipe with this
/// number.
pub(crate) fn start(status: i32, command: &[OsString]) -> anyhow::Result<ExitCode> {
    let context = "cannot report the end of a program";
    // The program must not inherit the pipe.
    let mut pipe =
        File::options().write(true).open(format!("/proc/self/fd/{status}")).context(context)?;
    close(status).context(context)?;
    pipe.write_all(&[status::STARTED]).context(context)?;
    let (program, args) = command.split_first().context("cannot start a program: none is named")?;
    let mut child = Command::new(program);
    let child = child.args(args).spawn();
    let child = child.with_context(|| format!("cannot execute {}", program.display()))?;
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    loop {
        match waitpid(pid, None) {
            Ok(ended) => {
                if let Some((text, code)) = status::report(&ended) {
                    pipe.write_all(text.as_bytes()).context(context)?;
                    return Ok(ExitCode::from(code));
                }
            }
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("cannot wait for the program"),
        }
    }
}

/// Executes the program of a job, with signals unblocked. Exits as a shell does if it cannot.
pub(crate) fn run(command: &[OsString]) -> anyhow::Result<ExitCode> {
    stops().thread_unblock().context("cannot unblock signals")?;
    let (program, args) = command.split_first().context("cannot start a program: none is named")?;
    let error = Command::new(program).args(args).exec();
    eprintln!("{}: {error}", program.display());
    Ok(ExitCode::from(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }))
}

fn execute(command: &[OsString]) -> anyhow::Result<ExitCode> {
    let (program, args) = command.split_first().context("cannot start a program: none is named")?;
    let error = Command::new(program).args(args).exec();
    Err(error).with_context(|| format!("cannot execute {}", program.display()))
}
