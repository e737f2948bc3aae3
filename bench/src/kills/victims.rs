//! Processes that are killed and started again.
use std::{
    collections::BTreeMap,
    fmt, fs,
    process::{Command, Stdio},
    time::Duration,
};

use rand::Rng as _;
use tests::{Runner, Server};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    Server,
    Runner,
    BuildRunner,
    ServerAndRunner,
    Postgres,
}

/// Processes that may be killed, and counts of kills.
pub struct Victims {
    pub server: Server,
    pub runner: Runner,
    killed: BTreeMap<Victim, u32>,
}

impl Victims {
    pub fn new(server: Server, runner: Runner) -> Victims {
        Victims { server, runner, killed: BTreeMap::new() }
    }

    /// Kills a random process, or the server and the runner, with SIGKILL. Starts the killed
    /// processes again after a moment, unless `stead up` does.
    pub fn kill_one(&mut self) {
        let victim = match rand::thread_rng().gen_range(0..10) {
            0..3 => Victim::Server,
            3..7 => Victim::Runner,
            7 => Victim::BuildRunner,
            8 => Victim::Postgres,
            _ => Victim::ServerAndRunner,
        };
        match victim {
            Victim::Server => {
                self.server.kill();
                short_pause();
                self.server.restart();
            }
            Victim::Runner => {
                self.runner.kill();
                short_pause();
                self.runner.restart();
            }
            Victim::BuildRunner => {
                // `stead up` restarts the build runner. If no build runner runs, another process is
                // killed.
                let Some(pid) = self.build_runner() else { return self.kill_one() };
                kill(&pid);
            }
            Victim::ServerAndRunner => {
                self.server.kill();
                self.runner.kill();
                short_pause();
                self.runner.restart();
                short_pause();
                self.server.restart();
            }
            Victim::Postgres => {
                kill(&self.postmaster());
                // `stead up` exits without its database. It may still run at this moment, so the
                // campaign kills it.
                short_pause();
                self.server.kill();
                self.server.restart();
            }
        }
        *self.killed.entry(victim).or_default() += 1;
    }

    fn postmaster(&self) -> String {
        let pid_file =
            fs::read_to_string(self.server.data().join("postgres/postmaster.pid")).unwrap();
        pid_file.lines().next().unwrap().trim().to_string()
    }

    fn build_runner(&self) -> Option<String> {
        let pid = fs::read_to_string(self.server.data().join("build-runner.pid")).ok()?;
        let pid = pid.trim().to_string();
        // The process id may belong to another process by now.
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        String::from_utf8_lossy(&line).contains("stead-runner").then_some(pid)
    }
}

fn kill(pid: &str) {
    let _killed = Command::new("kill").args(["-KILL", pid]).stderr(Stdio::null()).status();
}

fn short_pause() {
    let milliseconds = rand::thread_rng().gen_range(0..1_500);
    std::thread::sleep(Duration::from_millis(milliseconds));
}

impl fmt::Display for Victims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |victim| self.killed.get(&victim).copied().unwrap_or_default();
        let (server, runner) = (of(Victim::Server), of(Victim::Runner));
        let (build, both) = (of(Victim::BuildRunner), of(Victim::ServerAndRunner));
        let postgres = of(Victim::Postgres);
        write!(f, "server {server}, runner {runner}, both at once {both}, ")?;
        write!(f, "build runner {build}, Postgres {postgres}")
    }
}
