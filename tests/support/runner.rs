//! A customer's runner, in a directory of its own.
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

use crate::{Server, program};

/// A running `stead-runner --mode install`.
pub struct Runner {
    pub(crate) dir: PathBuf,
    pub(crate) child: Child,
    pub(crate) more: Vec<String>,
}

impl Runner {
    /// Start a runner that enrols with this token. The ledger of side effects is `<dir>/ledger`.
    pub fn start(server: &Server, name: &str, token: &str) -> Runner {
        Runner::start_with(server, name, token, &[])
    }

    /// The same, with more on its command line, at every start.
    pub fn start_with(server: &Server, name: &str, token: &str, more: &[&str]) -> Runner {
        Runner::start_through(server, server.runner(), name, token, more)
    }

    /// The same, where the runner calls somebody who is before the server.
    pub fn start_through(
        server: &Server,
        url: &str,
        name: &str,
        token: &str,
        more: &[&str],
    ) -> Runner {
        let dir = server.dir().join(name);
        fs::create_dir_all(&dir).unwrap();
        let token_file = dir.join("enrolment.token");
        fs::write(&token_file, token).unwrap();
        let more: Vec<String> = more.iter().map(|word| word.to_string()).collect();
        let mut command = command(&dir, &more);
        command
            .args(["--mode", "install", "--server", url])
            .args(["--server-key", server.fingerprint()])
            .arg("--token-file")
            .arg(&token_file)
            .args(["--stack-output", "account=acct-1", "--stack-output", "region=eu-1"]);
        let child = command.spawn().unwrap();
        Runner { dir, child, more }
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
        self.child = command(&self.dir, &self.more).spawn().unwrap();
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
        fs::read_to_string(self.dir.join("runner.log")).unwrap_or_default()
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

fn command(dir: &Path, more: &[String]) -> Command {
    let log = File::options().create(true).append(true).open(dir.join("runner.log")).unwrap();
    let mut command = Command::new(program("stead-runner"));
    command
        .arg("--data")
        .arg(dir.join("data"))
        .args(["--slots", "4", "--pass-env", "STEAD_LEDGER"])
        .args(more)
        .env("STEAD_LEDGER", dir.join("ledger"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log);
    command
}
