//! Builder of a customer's runner, with default settings or with another environment, program or
//! user.
use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{Cluster, Runner, Server, launch::Launch, program, stdout_of};

/// Builder of a `stead-runner --mode install` process with its own directory.
pub struct Customer {
    dir: PathBuf,
    program: PathBuf,
    before: Vec<String>,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    outputs: Vec<String>,
    server: String,
    policy: String,
}

impl Customer {
    /// Creates a customer in `<server's directory>/<name>`. Jobs append each side effect to
    /// `<dir>/ledger`.
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
            policy: String::new(),
        };
        customer.with(&["--slots", "4"]).pass("STEAD_LEDGER", &ledger)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Sets a command that runs the program, for example to switch the user.
    pub fn through(mut self, args: &[String]) -> Customer {
        self.before = args.to_vec();
        self
    }

    /// Sets another file for the program.
    pub fn program(mut self, path: PathBuf) -> Customer {
        self.program = path;
        self
    }

    /// Adds command-line arguments for every start.
    pub fn with(mut self, arguments: &[&str]) -> Customer {
        self.arguments.extend(arguments.iter().map(|word| word.to_string()));
        self
    }

    /// Adds a stack output for the enrolment. The last value of a name takes precedence.
    pub fn output(mut self, output: &str) -> Customer {
        self.outputs.push(output.into());
        self
    }

    /// Sets an environment variable for the runner, but not for jobs.
    pub fn env(mut self, name: &str, value: &str) -> Customer {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Sets an environment variable for the runner and its jobs.
    pub fn pass(self, name: &str, value: &str) -> Customer {
        self.with(&["--pass-env", name]).env(name, value)
    }

    /// Sets the rules of the customer's policy. Without them, the runner writes its starting policy.
    pub fn policy(mut self, rules: &str) -> Customer {
        self.policy = rules.into();
        self
    }

    /// Runs the jobs in a sandbox, which shows the ledger.
    pub fn in_sandbox(self) -> Customer {
        let rules = format!("isolation = \"sandbox\"\nsandbox_write = [{:?}]\n", self.dir);
        self.policy(&rules)
    }

    /// Runs the jobs in a sandbox, which reaches this cluster of the tests and shows the files of the test.
    pub fn in_sandbox_with(self, server: &Server, cluster: &Cluster) -> Customer {
        let view =
            ["config", "view", "--minify", "--output", "jsonpath={.clusters[0].cluster.server}"];
        let url = stdout_of(cluster.kubectl().args(view));
        let shown: Vec<_> = tools().into_iter().chain([server.dir().to_owned()]).collect();
        self.in_sandbox_reaching(&url, &shown)
    }

    /// Runs the jobs in a sandbox, which reaches this service on the loopback interface, and shows
    /// the ledger and these paths.
    pub fn in_sandbox_reaching(self, url: &str, shown: &[PathBuf]) -> Customer {
        let port = url.rsplit_once(':').map_or("443", |(_, port)| port.trim_end_matches('/'));
        let rules = format!(
            "isolation = \"sandbox\"\nsandbox_write = [{:?}]\nsandbox_read = {shown:?}\nsandbox_loopback = [{port}]\n",
            self.dir,
        );
        self.policy(&rules)
    }

    /// Sets another server URL, such as a proxy.
    pub fn calls(mut self, url: &str) -> Customer {
        self.server = url.into();
        self
    }

    /// Writes the token and starts the runner.
    pub fn start(self, server: &Server, token: &str) -> Runner {
        let Customer { dir, program, before, arguments, environment, outputs, .. } = &self;
        let (url, policy) = (&self.server, dir.join("policy.toml"));
        let (token_file, data) = (dir.join("enrolment.token"), dir.join("data"));
        fs::write(&token_file, token).unwrap();
        let mut launch = Launch::new(program, dir.join("runner.log"));
        launch.through(before);
        launch.with(["--data", data.to_str().unwrap()]);
        launch.with(arguments);
        for (name, value) in environment {
            launch.env(name, value);
        }
        // An enrolled runner needs no server URL.
        let token_file = token_file.to_str().unwrap();
        let mut first = vec!["--mode", "install", "--server", url];
        if !self.policy.is_empty() {
            fs::write(&policy, format!("version = 1\n{}", self.policy)).unwrap();
            first.extend(["--policy", policy.to_str().unwrap()]);
        }
        first.extend(["--server-key", server.fingerprint(), "--token-file", token_file]);
        first.extend(outputs.iter().flat_map(|output| ["--stack-output", output.as_str()]));
        let child = launch.start(&first);
        Runner { dir: self.dir, child, launch }
    }
}

/// Returns the directories of the tools that `scripts/test-tools` installs. The `helm` of the tests is
/// a script that executes the Python of such a directory, which may be a link to another one.
fn tools() -> Vec<PathBuf> {
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let dir = home.join(".cache/stead/tools");
    let Ok(entries) = fs::read_dir(&dir) else { return Vec::new() };
    let python = |entry: fs::DirEntry| fs::canonicalize(entry.path().join("bin/python3")).ok();
    let pythons = entries.flatten().filter_map(python);
    let above = pythons.filter_map(|file| Some(file.parent()?.parent()?.to_owned()));
    above.chain([dir]).collect()
}
