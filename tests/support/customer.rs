//! A customer before their runner is started: by default, or with an environment of their own, by another
//! program, as somebody else.
use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{Runner, Server, launch::Launch, program};

/// A `stead-runner --mode install` that is about to be started, in a directory of its own.
pub struct Customer {
    dir: PathBuf,
    program: PathBuf,
    before: Vec<String>,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    outputs: Vec<String>,
    server: String,
}

impl Customer {
    /// In `<server's directory>/<name>`. The ledger of side effects is `<dir>/ledger`.
    pub fn new(server: &Server, name: &str) -> Customer {
        let dir = server.dir().join(name);
        fs::create_dir_all(&dir).unwrap();
        let ledger = dir.join("ledger").display().to_string();
        let customer = Customer {
            dir,
            program: program("stead-runner"),
            before: vec![],
            arguments: vec![],
            environment: vec![],
            outputs: ["account=acct-1", "region=eu-1"].map(String::from).into(),
            server: server.runner().to_string(),
        };
        customer.with(&["--slots", "4"]).pass("STEAD_LEDGER", &ledger)
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

    /// More of the command line, at every start.
    pub fn with(mut self, arguments: &[&str]) -> Customer {
        self.arguments.extend(arguments.iter().map(|word| word.to_string()));
        self
    }

    /// One more output of the stack, which is told at the enrolment. The last one of a name counts.
    pub fn output(mut self, output: &str) -> Customer {
        self.outputs.push(output.into());
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

    /// Call somebody who is before the server.
    pub fn calls(mut self, url: &str) -> Customer {
        self.server = url.into();
        self
    }

    /// Write the token and start.
    pub fn start(self, server: &Server, token: &str) -> Runner {
        let Customer { dir, program, before, arguments, environment, outputs, server: url } = self;
        let (token_file, data) = (dir.join("enrolment.token"), dir.join("data"));
        fs::write(&token_file, token).unwrap();
        let mut launch = Launch::new(&program, dir.join("runner.log"));
        launch.through(&before);
        launch.with(["--data", data.to_str().unwrap()]);
        launch.with(&arguments);
        for (name, value) in &environment {
            launch.env(name, value);
        }
        // Once enrolled, a runner knows its server.
        let token_file = token_file.to_str().unwrap();
        let mut first = vec!["--mode", "install", "--server", &url];
        first.extend(["--server-key", server.fingerprint(), "--token-file", token_file]);
        first.extend(outputs.iter().flat_map(|output| ["--stack-output", output.as_str()]));
        let child = launch.start(&first);
        Runner { dir, child, launch }
    }
}
