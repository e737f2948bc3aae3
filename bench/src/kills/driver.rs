//! Keeps an install busy: as soon as a run is over, the next change.
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

const LOOK: Duration = Duration::from_millis(150);
/// A call that was under way when the server died is not waited for any longer.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long nothing must go on before nothing goes on.
const QUIET: Duration = Duration::from_secs(6);
const MODULES: [&str; 5] = ["network", "database", "cache", "api", "edge"];

/// Who changes the install. Every call may fail because nobody is there; then another one is made.
pub struct Driver {
    control: String,
    token: PathBuf,
    app: App,
    stopped: AtomicBool,
    ended: Mutex<BTreeMap<String, String>>,
}

/// What is changed.
pub enum App {
    /// `edge-api`: inputs, and modules in new versions.
    EdgeApi { app: PathBuf, versions: PathBuf, version: AtomicU64 },
    /// `notes-files`: inputs only.
    NotesFiles,
}

impl App {
    /// This copy of it, where new versions are made beside it.
    pub fn edge_api(server: &Server, app: &Path) -> App {
        let (app, versions) = (app.to_path_buf(), server.dir().join("versions"));
        App::EdgeApi { app, versions, version: AtomicU64::new(1) }
    }
}

impl Driver {
    /// Calls that address with that token.
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

    /// Change, wait, change, until told to stop.
    pub fn drive(&self) {
        while !self.stopped.load(Ordering::SeqCst) {
            if self.is_idle() {
                self.change();
            }
            std::thread::sleep(LOOK);
        }
    }

    /// What is wrong with the runs once none of them goes on.
    pub fn wait_for_the_last(&self, limit: Duration) -> Vec<String> {
        let (begin, mut idle_since) = (Instant::now(), None);
        // The view may not show the last change yet.
        while idle_since.is_none_or(|since: Instant| since.elapsed() < QUIET) {
            idle_since = self.is_idle().then(|| idle_since.unwrap_or_else(Instant::now));
            if begin.elapsed() > limit {
                return vec![format!("a run is stuck: {:?}", self.ask(&["runs", "show", "acme"]))];
            }
            std::thread::sleep(LOOK);
        }
        let all = self.ask(&["runs", "list", "--install", "acme", "--limit", "200"]);
        let all = all.and_then(|all| all.as_array().cloned()).unwrap_or_default();
        let state = |run: &Value| run["state"].as_str().unwrap_or_default().to_string();
        let mut counts = BTreeMap::<String, u32>::new();
        all.iter().for_each(|run| *counts.entry(state(run)).or_default() += 1);
        println!("runs: {counts:?}");
        let bad = all.iter().filter(|run| state(run) != "succeeded");
        let mut wrong: Vec<_> = bad.map(|run| format!("a run did not succeed: {run}")).collect();
        if all.is_empty() {
            wrong.push("there was no run".into());
        }
        wrong
    }

    fn is_idle(&self) -> bool {
        let Some(run) = self.ask(&["runs", "show", "acme"]) else { return false };
        let (Some(id), Some(state)) = (run["id"].as_str(), run["state"].as_str()) else {
            return false;
        };
        let over = ["succeeded", "failed", "cancelled", "denied", "expired"].contains(&state);
        if over {
            self.ended.lock().unwrap().insert(id.into(), state.into());
        }
        over
    }

    fn change(&self) {
        let mut random = rand::thread_rng();
        let number = random.gen_range(1..1_000);
        let set = |input: String| {
            self.ask(&["installs", "set-inputs", "acme", "--input", &input]);
        };
        match (&self.app, random.gen_range(0..3)) {
            (App::EdgeApi { .. }, 0) => set(format!("replicas={number}")),
            (App::NotesFiles, 0) => set(format!("copies={number}")),
            (App::NotesFiles, 1) => set(format!("motto=Number {number}")),
            (App::NotesFiles, _) => set(format!("company=Acme {number}")),
            (App::EdgeApi { .. }, 1) => {
                self.ask(&["installs", "rollback", "acme", "--reason", "going back"]);
            }
            (App::EdgeApi { app, versions, version }, _) => {
                let module = MODULES[random.gen_range(0..MODULES.len())];
                self.publish((app, versions), version, module);
            }
        }
    }

    /// A version in which one module is another one, which is a new effect; then move to it.
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
        let Some(synced) = self.ask(&["apps", "sync", copy.to_str().unwrap()]) else { return };
        let Some(published) = synced["version"].as_u64() else { return };
        last.store(published, Ordering::SeqCst);
        let to = published.to_string();
        self.ask(&["installs", "upgrade", "acme", "--to", &to, "--reason", "a new version"]);
    }

    /// What a command answers, if anybody does.
    fn ask(&self, args: &[&str]) -> Option<Value> {
        let mut command = Command::new(program("stead"));
        command.args(["--output", "json", "--server", &self.control]);
        command.arg("--token-file").arg(&self.token).args(args).stdin(Stdio::null());
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("stead starts");
        let out = child.stdout.take().unwrap();
        // Read beside the wait: a long answer does not fit a pipe.
        let read = std::thread::spawn(move || std::io::read_to_string(out).unwrap_or_default());
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if begin.elapsed() > PATIENCE {
                let _gone = child.kill();
                break child.wait().unwrap();
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let text = read.join().unwrap();
        if status.success() { serde_json::from_str(&text).ok() } else { None }
    }
}
