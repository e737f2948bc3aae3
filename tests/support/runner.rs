//! A customer's runner, in a directory of its own.
use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
};

use crate::{Customer, Server, launch::Launch, program};

/// A running `stead-runner --mode install`.
pub struct Runner {
    pub(crate) dir: PathBuf,
    pub(crate) child: Child,
    pub(crate) launch: Launch,
}

impl Runner {
    /// Start a runner that enrols with this token. The ledger of side effects is `<dir>/ledger`.
    pub fn start(server: &Server, name: &str, token: &str) -> Runner {
        Customer::new(server, name).start(server, token)
    }

    /// The same, with more on its command line, at every start.
    pub fn start_with(server: &Server, name: &str, token: &str, more: &[&str]) -> Runner {
        Customer::new(server, name).with(more).start(server, token)
    }

    /// SIGKILL to the supervisor alone: shims and their children are on their own.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM: take nothing new, finish, end.
    pub fn drain(&self) {
        let pid = self.pid().to_string();
        crate::stdout_of(Command::new("kill").args(["-TERM", &pid]));
    }

    /// How the supervisor ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Start the supervisor again.
    pub fn restart(&mut self) {
        self.child = self.launch.start::<&str>(&[]);
    }

    /// The supervisor's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its data directory.
    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// `stead-runner <args>` on its data directory.
    pub fn local(&self, args: &[&str]) -> Command {
        let mut local = Command::new(program("stead-runner"));
        local.args(args).arg("--data").arg(self.data()).stdin(Stdio::null());
        local
    }

    /// Every side effect so far: what, and by which execution.
    pub fn ledger(&self) -> Vec<(String, String)> {
        let text = fs::read_to_string(self.dir.join("ledger")).unwrap_or_default();
        let line = |line: &str| {
            let (what, who) = line.split_once(' ')?;
            Some((what.to_string(), who.to_string()))
        };
        text.lines().filter_map(line).collect()
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.launch.log()
    }
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
