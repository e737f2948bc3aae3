//! Runner of a customer, in its own directory.
use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
};

use crate::{Customer, Server, launch::Launch, program};

/// Running `stead-runner --mode install`.
pub struct Runner {
    pub(crate) dir: PathBuf,
    pub(crate) child: Child,
    pub(crate) launch: Launch,
}

impl Runner {
    /// Starts a runner that enrols with this token. Jobs append each side effect to `<dir>/ledger`.
    pub fn start(server: &Server, name: &str, token: &str) -> Runner {
        Customer::new(server, name).start(server, token)
    }

    /// Starts a runner that gets further arguments at every start.
    pub fn start_with(server: &Server, name: &str, token: &str, more: &[&str]) -> Runner {
        Customer::new(server, name).with(more).start(server, token)
    }

    /// Sends SIGKILL to the supervisor alone. Shims and their children continue.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends SIGTERM: the runner accepts no new job, finishes its jobs and exits.
    pub fn drain(&self) {
        let pid = self.pid().to_string();
        crate::stdout_of(Command::new("kill").args(["-TERM", &pid]));
    }

    /// Returns the exit status of the supervisor, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Starts the supervisor again.
    pub fn restart(&mut self) {
        self.child = self.launch.start::<&str>(&[]);
    }

    /// Returns the process id of the supervisor.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the data directory.
    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Returns `stead-runner <args>` for its data directory.
    pub fn local(&self, args: &[&str]) -> Command {
        let mut local = Command::new(program("stead-runner"));
        local.args(args).arg("--data").arg(self.data()).stdin(Stdio::null());
        local
    }

    /// Returns every side effect so far, each with its execution.
    pub fn ledger(&self) -> Vec<(String, String)> {
        let text = fs::read_to_string(self.dir.join("ledger")).unwrap_or_default();
        let line = |line: &str| {
            let (what, who) = line.split_once(' ')?;
            Some((what.to_string(), who.to_string()))
        };
        text.lines().filter_map(line).collect()
    }

    /// Returns the log so far.
    pub fn log(&self) -> String {
        self.launch.log()
    }
}

/// Returns the pid of a job's shim.
#[track_caller]
pub fn shim_of(job: &str) -> String {
    let found = crate::stdout_of(Command::new("pgrep").args(["-f", &format!("shim.*{job}")]));
    found.split_whitespace().next().unwrap().to_string()
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _ended = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the runner's log ---\n{}", self.log());
        }
    }
}
