//! A customer who starts the runner otherwise than by default: with an environment of their own, by another
//! program, as somebody else.
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{Runner, Server, program};

/// A `stead-runner --mode install` that is about to be started, in a directory of its own.
pub struct Customer {
    dir: PathBuf,
    program: PathBuf,
    before: Vec<String>,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Customer {
    /// In `<server's directory>/<name>`.
    pub fn new(server: &Server, name: &str) -> Customer {
        let dir = server.dir().join(name);
        fs::create_dir_all(&dir).unwrap();
        let environment = vec![("STEAD_LEDGER".into(), dir.join("ledger").display().to_string())];
        let arguments = ["--slots", "4", "--pass-env", "STEAD_LEDGER"].map(String::from).into();
        Customer { dir, program: program("stead-runner"), before: vec![], arguments, environment }
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Words in front of the program, such as what makes it another user.
    pub fn through(mut self, words: &[String]) -> Customer {
        self.before = words.to_vec();
        self
    }

    /// Another file of the same program.
    pub fn program(mut self, path: PathBuf) -> Customer {
        self.program = path;
        self
    }

    /// More of the command line.
    pub fn with(mut self, arguments: &[&str]) -> Customer {
        self.arguments.extend(arguments.iter().map(|word| word.to_string()));
        self
    }

    /// A variable that the runner has, and no job.
    pub fn env(mut self, name: &str, value: &str) -> Customer {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// A variable that jobs get, too.
    pub fn pass(self, name: &str, value: &str) -> Customer {
        self.with(&["--pass-env", name]).env(name, value)
    }

    /// Write the token and start.
    pub fn start(self, server: &Server, token: &str) -> Runner {
        let Customer { dir, program, before, arguments, environment } = self;
        let token_file = dir.join("enrolment.token");
        fs::write(&token_file, token).unwrap();
        let log = File::options().create(true).append(true).open(dir.join("runner.log")).unwrap();
        let mut words = before.into_iter();
        let mut command = match words.next() {
            Some(first) => {
                let mut command = Command::new(first);
                command.args(words).arg(&program);
                command
            }
            None => Command::new(&program),
        };
        command
            .args(["--mode", "install", "--server", server.runner()])
            .args(["--server-key", server.fingerprint()])
            .arg("--data")
            .arg(dir.join("data"))
            .arg("--token-file")
            .arg(&token_file)
            .args(["--stack-output", "account=acct-1", "--stack-output", "region=eu-1"])
            .args(arguments)
            .envs(environment)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let child = command.spawn().unwrap();
        Runner { dir, child, more: Vec::new() }
    }
}
