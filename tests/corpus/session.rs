//! Commands of one app's server, with errors instead of panics, and its runs.
use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::Value;
use tests::Server;

use crate::web::Web;

/// Reasons of a failed step: one for each failed part of a run, otherwise a single one.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) Vec<String>);

impl Failure {
    pub(crate) fn new(reason: impl Into<String>) -> Failure {
        Failure(vec![reason.into()])
    }
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

const END_STATES: [&str; 5] = ["succeeded", "failed", "cancelled", "denied", "expired"];

/// Server of one app, and the deadline of its whole run.
pub(crate) struct Session {
    pub(crate) server: Server,
    pub(crate) deadline: Instant,
    /// Web for the addresses that the app names.
    pub(crate) web: Option<Web>,
}

impl Session {
    /// Runs a `stead` command, and returns its JSON output.
    pub(crate) fn stead(&self, args: &[&str]) -> Outcome<Value> {
        let mut command = self.server.stead();
        // The pins of this server, not those of the user.
        command.env("XDG_CONFIG_HOME", self.server.dir().join("config"));
        command.envs(self.web.iter().flat_map(Web::environment));
        let output = command.args(args).output().unwrap();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        if !output.status.success() {
            let message = short(&format!("{stderr}{stdout}"));
            return Err(Failure::new(format!("stead {}: {message}", args.join(" "))));
        }
        Ok(serde_json::from_str(&stdout).unwrap_or(Value::Null))
    }

    /// Waits until a value exists.
    pub(crate) fn wait<T>(&self, what: &str, mut check: impl FnMut() -> Option<T>) -> Outcome<T> {
        loop {
            if let Some(value) = check() {
                return Ok(value);
            }
            if Instant::now() > self.deadline {
                return Err(Failure::new(format!("timeout: {what}")));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Returns the newest run of an install after its end, if it is another one than `before`.
    pub(crate) fn ended(&self, install: &str, before: Option<&str>) -> Outcome<Value> {
        let mut last = Value::Null;
        let ended = self.wait("a run", || {
            last = self.stead(&["runs", "show", install]).ok()?;
            let is_new = last["id"].as_str() != before;
            let state = last["state"].as_str().unwrap_or_default();
            (is_new && END_STATES.contains(&state)).then(|| last.clone())
        });
        ended.map_err(|_| {
            let open = steps(&last).filter(|step| {
                !matches!(step["state"].as_str(), Some("succeeded" | "skipped" | "pending"))
            });
            let open: Vec<String> =
                open.map(|step| format!("{} {}", step["name"], step["state"])).collect();
            Failure::new(format!("timeout: the {} does not end: {}", last["kind"], open.join(", ")))
        })
    }

    /// Returns the id of the newest run.
    pub(crate) fn newest(&self, install: &str) -> Option<String> {
        Some(self.stead(&["runs", "show", install]).ok()?["id"].as_str()?.to_owned())
    }

    /// Starts a run with a command, and waits until it succeeds.
    pub(crate) fn run(&self, install: &str, args: &[&str]) -> Outcome<Value> {
        let run = self.finished(install, args)?;
        if run.get("run").is_some_and(Value::is_null) {
            return Ok(run);
        }
        self.require_success(run)
    }

    /// Starts a run with a command, and waits for its end. Returns the output of a command that
    /// starts no run.
    pub(crate) fn finished(&self, install: &str, args: &[&str]) -> Outcome<Value> {
        let before = self.newest(install);
        let started = self.stead(args)?;
        if started.get("run").is_some_and(Value::is_null) {
            return Ok(started);
        }
        self.ended(install, before.as_deref())
    }

    /// Returns a run that succeeded, or the reasons of its failed steps.
    pub(crate) fn require_success(&self, run: Value) -> Outcome<Value> {
        if run["state"] == "succeeded" {
            return Ok(run);
        }
        let failed = steps(&run).filter(|step| step["state"] == "failed");
        let mut reasons: Vec<String> = failed
            .map(|step| {
                let name = step["name"].as_str().unwrap_or_default();
                let reason = step["reason"].as_str().unwrap_or_default();
                format!("{name}: {}{}", short(reason), self.end_of_log(step))
            })
            .collect();
        let checks = run["preflight"]["checks"].as_array().into_iter().flatten();
        let failed = checks.filter(|check| check["status"] == "failed");
        reasons.extend(failed.map(|check| short(&format!("preflight: {check}"))));
        match reasons.is_empty() {
            true => Err(Failure::new(format!("the {} is {}", run["kind"], run["state"]))),
            false => Err(Failure(reasons)),
        }
    }

    /// Returns the last lines of the log of a step's job.
    fn end_of_log(&self, step: &Value) -> String {
        let Some(job) = step["job"].as_str() else { return String::new() };
        let log = self.log(job);
        let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        format!(" [{}]", lines[lines.len().saturating_sub(6)..].join(" / "))
    }

    pub(crate) fn log(&self, job: &str) -> String {
        let output = self.server.stead_for_people().args(["jobs", "logs", job]).output().unwrap();
        text(&output.stdout)
    }

    /// Writes everything that explains a failure to a directory.
    pub(crate) fn save(&self, dir: &Path) {
        let _made = fs::create_dir_all(dir);
        let _written = fs::write(dir.join("server.log"), self.server.log());
        for list in ["runs", "builds", "jobs"] {
            let listed = self.stead(&[list, "list", "--limit", "200"]).unwrap_or_default();
            let _written = fs::write(dir.join(format!("{list}.json")), format!("{listed:#}"));
            for job in listed.as_array().into_iter().flatten().filter(|_| list == "jobs") {
                let is_ended_well = job["state"] == "succeeded";
                if let Some(id) = job["id"].as_str().filter(|_| !is_ended_well) {
                    let _written = fs::write(dir.join(format!("{id}.log")), self.log(id));
                }
            }
        }
        for install in ["acme", "second"] {
            let log = self.server.dir().join(install).join("runner.log");
            let _copied = fs::copy(log, dir.join(format!("runner-{install}.log")));
            let shown = self.stead(&["runs", "show", install]).unwrap_or_default();
            let _written = fs::write(dir.join(format!("run-{install}.json")), format!("{shown:#}"));
        }
    }
}

/// Returns the steps of a run.
pub(crate) fn steps(run: &Value) -> impl Iterator<Item = &Value> {
    run["dag"].as_array().into_iter().flatten()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns a message on one line.
pub(crate) fn short(message: &str) -> String {
    message.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" / ")
}
