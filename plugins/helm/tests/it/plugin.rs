//! The executable as a runner uses it: one process per job, JSON lines on its pipes.

use std::{
    ffi::OsString,
    fs,
    io::{BufRead, BufReader, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use ulid::Ulid;

use crate::cluster::Namespace;

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

/// Returns the engine of Helm. Without it, a test prints a note and passes; in CI it fails.
pub fn helm_or_skip() -> Option<PathBuf> {
    let helm = std::env::var_os("STEAD_TEST_HELM").map(PathBuf::from);
    let in_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    assert!(helm.is_some() || !in_ci, "CI must have Helm in STEAD_TEST_HELM");
    if helm.is_none() {
        eprintln!("SKIPPED: no Helm: set STEAD_TEST_HELM (scripts/test-tools)");
    }
    helm
}

/// `PATH` with one directory first.
pub fn search_path(first: &Path) -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(first.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(all).unwrap()
}

impl Plugin {
    pub fn start(helm: &Path, kubeconfig: Option<&Path>) -> Plugin {
        Plugin::start_in(helm, kubeconfig, &[])
    }

    /// Starts the plugin with further environment variables.
    pub fn start_in(helm: &Path, kubeconfig: Option<&Path>, more: &[(&str, &Path)]) -> Plugin {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stead-plugin-helm_chart"));
        command.env_clear().env("PATH", search_path(helm.parent().unwrap()));
        command.envs(more.iter().copied());
        if let Some(kubeconfig) = kubeconfig {
            command.env("KUBECONFIG", kubeconfig);
        }
        // As a runner does, so that a kill ends Helm, too.
        command.process_group(0);
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
                Some("result") if message["id"] == id => {
                    let file = message["value_file"]["path"].as_str();
                    let read = file.map(|path| fs::read(path).unwrap());
                    let read = read.map(|content| serde_json::from_slice(&content).unwrap());
                    return Ok(read.unwrap_or_else(|| message["value"].clone()));
                }
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

    /// Kills the plugin with all its processes.
    pub fn kill(&mut self) {
        let group = format!("-{}", self.child.id());
        let killed = Command::new("kill").args(["-KILL", "--", &group]).status().unwrap();
        assert!(killed.success());
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
    pub helm: PathBuf,
    pub kubeconfig: PathBuf,
    pub install: String,
    pub name: String,
    pub settings: Value,
    pub dir: TempDir,
    /// Log of the last job.
    pub log: Vec<String>,
}

impl Component {
    /// Creates a component whose chart has these files.
    pub fn new(namespace: &Namespace, helm: PathBuf, files: &[(&str, &str)]) -> Component {
        let dir = TempDir::new().unwrap();
        for part in ["source", "state", "work"] {
            fs::create_dir(dir.path().join(part)).unwrap();
        }
        let component = Component {
            helm,
            kubeconfig: namespace.kubeconfig.clone(),
            install: format!("ins_{}", Ulid::new()),
            name: "web".into(),
            settings: json!({ "release": "web", "namespace": namespace.name,
                              "ready_timeout_ms": 120_000 }),
            dir,
            log: vec![],
        };
        component.write("Chart.yaml", "{apiVersion: v2, name: shop, version: 1.0.0}");
        for (path, text) in files {
            component.write(path, text);
        }
        component
    }

    /// Writes a file of the chart.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.dir.path().join("source").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Deletes a file of the chart.
    pub fn remove(&self, path: &str) {
        fs::remove_file(self.dir.path().join("source").join(path)).unwrap();
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
        let mut plugin = Plugin::start(&self.helm, Some(&self.kubeconfig));
        let described =
            plugin.call(json!({ "call": "describe", "protocol": 2, "protocols": [1, 2] })).unwrap();
        assert_eq!(described["name"], "helm_chart");
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

    /// Checks of the preflight.
    pub fn preflight(&mut self) -> Value {
        let checked = self.job("apply", |own, plugin| plugin.call(own.call("preflight", "apply")));
        checked.unwrap()["checks"].clone()
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

    /// Call that executes the plan file.
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

    /// Refusal of a plan.
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
