//! The executable as a runner uses it: one process per job, JSON lines on its pipes.

use std::{
    ffi::OsString,
    fs,
    io::{BufRead, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use ulid::Ulid;

/// Error of a call: code and message.
pub type CallError = (String, String);

/// Process of one job.
pub struct Plugin {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    last_id: u64,
    /// Lines of the log and names of phases, in order.
    pub log: Vec<String>,
}

/// `PATH` with the kubectl of the tests first.
fn search_path() -> OsString {
    let kubectl = std::env::var_os("STEAD_TEST_KUBECTL").map(PathBuf::from);
    let first = kubectl.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(first.into_iter().chain(std::env::split_paths(&path))).unwrap()
}

impl Plugin {
    pub fn start(kubeconfig: Option<&Path>) -> Plugin {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stead-plugin-kubernetes_manifest"));
        command.env_clear().env("PATH", search_path());
        if let Some(kubeconfig) = kubeconfig {
            command.env("KUBECONFIG", kubeconfig);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Plugin { child, stdin, stdout, last_id: 0, log: vec![] }
    }

    /// Sends a call without waiting for its result.
    pub fn send(&mut self, mut call: Value) -> u64 {
        self.last_id += 1;
        call["id"] = json!(self.last_id);
        writeln!(self.stdin.as_mut().unwrap(), "{call}").unwrap();
        self.last_id
    }

    pub fn call(&mut self, call: Value) -> Result<Value, CallError> {
        let id = self.send(call);
        self.result(id)
    }

    /// Reads messages until the result of a call.
    #[track_caller]
    pub fn result(&mut self, id: u64) -> Result<Value, CallError> {
        loop {
            let message = self.message().expect("the plugin ended without a result");
            let text = |key: &str| message[key].as_str().unwrap_or_default().to_owned();
            match message["type"].as_str() {
                Some("result") if message["id"] == id => return Ok(message["value"].clone()),
                Some("error") if message["id"] == id => {
                    return Err((text("code"), text("message")));
                }
                Some("log" | "progress") => {}
                _ => panic!("unexpected message: {message}"),
            }
        }
    }

    /// Reads messages until a line of the log contains a text.
    #[track_caller]
    pub fn until_log(&mut self, part: &str) {
        while !self.log.iter().any(|line| line.contains(part)) {
            let message = self.message().expect("the plugin ended");
            assert!(message["type"] != "error", "{message}");
            assert!(message["type"] != "result", "the call ended: {:?}", self.log);
        }
    }

    fn message(&mut self) -> Option<Value> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line).unwrap() == 0 {
            return None;
        }
        let message: Value = serde_json::from_str(&line).unwrap();
        for key in ["line", "phase"] {
            self.log.extend(message[key].as_str().map(str::to_owned));
        }
        Some(message)
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Closes standard input and waits for the exit.
    pub fn close(mut self) {
        self.stdin = None;
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        let _already_ended = self.child.kill();
        let _already_ended = self.child.wait();
    }
}

/// Component of an install in a test.
pub struct Component {
    pub kubeconfig: PathBuf,
    pub install: String,
    pub name: String,
    pub settings: Value,
    pub dir: TempDir,
    /// Log of the last job.
    pub log: Vec<String>,
}

impl Component {
    pub fn new(kubeconfig: &Path, namespace: &str, manifest: &str) -> Component {
        let dir = TempDir::new().unwrap();
        for part in ["source", "state", "work"] {
            fs::create_dir(dir.path().join(part)).unwrap();
        }
        Component {
            kubeconfig: kubeconfig.to_owned(),
            install: format!("ins_{}", Ulid::new()),
            name: "web".into(),
            settings: json!({ "namespace": namespace, "manifest": manifest,
                              "manifest_file": "web.yaml", "ready_timeout_ms": 120_000 }),
            dir,
            log: vec![],
        }
    }

    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.settings[key] = value.into();
    }

    pub fn plan_file(&self) -> PathBuf {
        self.dir.path().join("work/plan")
    }

    fn call(&self, call: &str, operation: &str) -> Value {
        json!({
            "call": call,
            "component": self.name,
            "operation": operation,
            "inputs": { "install": self.install, "settings": self.settings },
            "source_dir": self.dir.path().join("source"),
            "state_dir": self.dir.path().join("state"),
            "work_dir": self.dir.path().join("work"),
        })
    }

    /// Runs calls of one job in one process, after `describe` and `health`.
    fn job<T>(
        &mut self,
        operation: &str,
        job: impl FnOnce(&Component, &mut Plugin) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let mut plugin = Plugin::start(Some(&self.kubeconfig));
        let described = plugin.call(json!({ "call": "describe", "protocol": 1 })).unwrap();
        assert_eq!(described["name"], "kubernetes_manifest");
        let result = match plugin.call(self.call("health", operation)) {
            Ok(_) => job(self, &mut plugin),
            Err(error) => Err(error),
        };
        self.log = std::mem::take(&mut plugin.log);
        if result.is_ok() {
            plugin.close();
        }
        result
    }

    pub fn state(&mut self) -> Value {
        self.job("apply", |own, plugin| plugin.call(own.call("state", "apply"))).unwrap()
    }

    /// Returns the checks before a run.
    pub fn preflight(&mut self) -> Value {
        let checked =
            self.job("apply", |own, plugin| plugin.call(own.call("preflight", "apply"))).unwrap();
        checked["checks"].clone()
    }

    /// Plans an operation, `apply` or `destroy`.
    pub fn plan_for(&mut self, operation: &str) -> Result<Value, CallError> {
        self.job(operation, |own, plugin| {
            let mut call = own.call("plan", operation);
            call["plan_file"] = json!(own.plan_file());
            plugin.call(call)
        })
    }

    pub fn plan(&mut self) -> Result<Value, CallError> {
        self.plan_for("apply")
    }

    /// Returns the call that executes the plan file.
    pub fn execute_call(&mut self, operation: &str) -> Value {
        let state = self.state();
        let mut call = self.call(operation, operation);
        call["plan_file"] = json!(self.plan_file());
        call["state"] = state;
        call
    }

    /// Executes the plan file and returns the outputs.
    pub fn execute(&mut self, operation: &str) -> Result<Value, CallError> {
        let call = self.execute_call(operation);
        self.job(operation, |own, plugin| {
            plugin.call(call)?;
            plugin.call(own.call("outputs", operation))
        })
    }

    /// Plans and applies.
    #[track_caller]
    pub fn deploy(&mut self) -> Value {
        self.plan().unwrap();
        self.execute("apply").unwrap()
    }

    #[track_caller]
    pub fn destroy(&mut self) -> Value {
        let plan = self.plan_for("destroy").unwrap();
        self.execute("destroy").unwrap();
        plan
    }

    /// Plans, and returns the message of the refusal.
    #[track_caller]
    pub fn refusal(&mut self) -> String {
        let (code, message) = self.plan().unwrap_err();
        assert_eq!(code, "refused", "{message}");
        message
    }
}

/// Returns `action address [attributes]` of each change in a plan.
pub fn changes(plan: &Value) -> Vec<String> {
    let resources = plan["resources"].as_array().unwrap().iter();
    let shown = resources.map(|resource| {
        let attributes = resource["attributes"].as_array().into_iter().flatten();
        let attributes: Vec<&str> = attributes.map(|one| one.as_str().unwrap()).collect();
        let (action, address) = (&resource["action"], &resource["address"]);
        let (action, address) = (action.as_str().unwrap(), address.as_str().unwrap());
        match attributes.is_empty() {
            true => format!("{action} {address}"),
            false => format!("{action} {address} [{}]", attributes.join(", ")),
        }
    });
    shown.collect()
}
