//! Keeps an install busy: starts the next change as soon as a run has ended.
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rand::Rng as _;
use serde_json::Value;
use tests::{Server, program};

const POLL_INTERVAL: Duration = Duration::from_millis(150);
/// Timeout of a call that is in progress when the server dies.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// Idle time after which no further run is expected.
const IDLE_TIME: Duration = Duration::from_secs(6);
const MODULES: [&str; 5] = ["network", "database", "cache", "api", "edge"];

/// Changes the install. A call may fail while no server runs; then the driver continues with
/// another change.
pub struct Driver {
    control: String,
    token: PathBuf,
    app: App,
    stopped: AtomicBool,
    ended: Mutex<BTreeMap<String, String>>,
}

/// App of the changed install.
pub enum App {
    /// `edge-api`: inputs, and new versions of its modules.
    EdgeApi { app: PathBuf, versions: PathBuf, version: AtomicU64 },
    /// `notes-files`: inputs only.
    NotesFiles,
}

impl App {
    /// Uses this copy of `edge-api`. New versions are created next to the copy.
    pub fn edge_api(server: &Server, app: &Path) -> App {
        let (app, versions) = (app.to_path_buf(), server.dir().join("versions"));
        App::EdgeApi { app, versions, version: AtomicU64::new(1) }
    }
}

impl Driver {
    pub fn new(control: &str, token: PathBuf, app: App) -> Driver {
        Driver {
            control: control.to_string(),
            token,
            app,
            stopped: AtomicBool::new(false),
            ended: Mutex::default(),
        }
    }

    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    pub fn runs_ended(&self) -> usize {
        self.ended.lock().unwrap().len()
    }

    /// Changes the install whenever no run is active, until [`Driver::stop`] is called.
    pub fn drive(&self) {
        while !self.stopped.load(Ordering::SeqCst) {
            if self.is_idle() {
                self.change();
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until no run is active. Returns all violations.
    pub fn wait_for_the_last(&self, limit: Duration) -> Vec<String> {
        let (begin, mut idle_since) = (Instant::now(), None);
        // The projection may not include the last change yet.
        while idle_since.is_none_or(|since: Instant| since.elapsed() < IDLE_TIME) {
            idle_since = self.is_idle().then(|| idle_since.unwrap_or_else(Instant::now));
            if begin.elapsed() > limit {
                return vec![format!(
                    "a run is stuck: {:?}",
                    self.run_cli(&["runs", "show", "acme"])
                )];
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        let all = self.run_cli(&["runs", "list", "--install", "acme", "--limit", "200"]);
        let all = all.and_then(|all| all.as_array().cloned()).unwrap_or_default();
        let state = |run: &Value| run["state"].as_str().unwrap_or_default().to_string();
        let mut counts = BTreeMap::<String, u32>::new();
        all.iter().for_each(|run| *counts.entry(state(run)).or_default() += 1);
        println!("runs: {counts:?}");
        let unsuccessful = all.iter().filter(|run| state(run) != "succeeded");
        let mut wrong: Vec<_> =
            unsuccessful.map(|run| format!("a run did not succeed: {run}")).collect();
        if all.is_empty() {
            wrong.push("no run was created".into());
        }
        wrong
    }

    fn is_idle(&self) -> bool {
        let Some(run) = self.run_cli(&["runs", "show", "acme"]) else { return false };
        let (Some(id), Some(state)) = (run["id"].as_str(), run["state"].as_str()) else {
            return false;
        };
        let is_over = ["succeeded", "failed", "cancelled", "denied", "expired"].contains(&state);
        if is_over {
            self.ended.lock().unwrap().insert(id.into(), state.into());
        }
        is_over
    }

    fn change(&self) {
        let mut random = rand::thread_rng();
        let number = random.gen_range(1..1_000);
        let set = |input: String| {
            self.run_cli(&["installs", "set-inputs", "acme", "--input", &input]);
        };
        match (&self.app, random.gen_range(0..3)) {
            (App::EdgeApi { .. }, 0) => set(format!("replicas={number}")),
            (App::NotesFiles, 0) => set(format!("copies={number}")),
            (App::NotesFiles, 1) => set(format!("motto=Number {number}")),
            (App::NotesFiles, _) => set(format!("company=Acme {number}")),
            (App::EdgeApi { .. }, 1) => {
                self.run_cli(&["installs", "rollback", "acme", "--reason", "going back"]);
            }
            (App::EdgeApi { app, versions, version }, _) => {
                let module = MODULES[random.gen_range(0..MODULES.len())];
                self.publish((app, versions), version, module);
            }
        }
    }

    /// Publishes a version with one changed module, and upgrades the install to it. The changed
    /// module has a new effect.
    fn publish(&self, (app, versions): (&Path, &Path), last: &AtomicU64, module: &str) {
        let version = last.load(Ordering::SeqCst) + 1;
        let copy = versions.join(version.to_string()).join("edge-api");
        fs::create_dir_all(versions).unwrap();
        let _former = fs::remove_dir_all(copy.parent().unwrap());
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        let mut cp = Command::new("cp");
        assert!(cp.arg("-R").arg(app).arg(&copy).status().unwrap().success());
        let main = copy.join("modules").join(module).join("main.tf");
        let text = fs::read_to_string(&main).unwrap();
        let other = format!("triggers_replace = {{\n    generation = \"{version}\"");
        fs::write(&main, text.replacen("triggers_replace = {", &other, 1)).unwrap();
        let Some(synced) = self.run_cli(&["apps", "sync", copy.to_str().unwrap()]) else { return };
        let Some(published) = synced["version"].as_u64() else { return };
        last.store(published, Ordering::SeqCst);
        let to = published.to_string();
        self.run_cli(&["installs", "upgrade", "acme", "--to", &to, "--reason", "a new version"]);
    }

    /// Output of a command. `None` if the command fails, for example because no server runs.
    fn run_cli(&self, args: &[&str]) -> Option<Value> {
        let mut command = Command::new(program("stead"));
        command.args(["--output", "json", "--server", &self.control]);
        command.arg("--token-file").arg(&self.token).args(args).stdin(Stdio::null());
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("cannot start stead");
        let out = child.stdout.take().unwrap();
        // Read in a separate thread, because a long output does not fit into a pipe.
        let read = std::thread::spawn(move || std::io::read_to_string(out).unwrap_or_default());
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if begin.elapsed() > CALL_TIMEOUT {
                let _killed = child.kill();
                break child.wait().unwrap();
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let text = read.join().unwrap();
        if status.success() { serde_json::from_str(&text).ok() } else { None }
    }
}
