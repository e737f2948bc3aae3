//! A log of realistic runs. An install admits a run and the run is planned. Its plan job and its
//! apply job are queued, claimed, run and finalized, with an approval between them. Payloads are
//! the example files with other ids. The runner of the install signs its reports.
use std::{collections::BTreeMap, path::Path};

use domain::actor::Actor;
use serde_json::{Value, json};
use ulid::Ulid;

use self::signer::{Of, RUNNER, Signer};
use event_log::{Commit, EventLog, Meta, NewEvent, StreamId, Write};

mod signer;

/// Events of one run, by stream, in this order.
const INSTALL: &[&str] = &[
    "install.run_admitted",
    "install.component_reserved",
    "install.component_deployed",
    "install.component_released",
    "install.run_finished",
];
const RUN: &[&str] = &[
    "run.requested",
    "run.planned",
    "run.step_started",
    "run.plan_produced",
    "run.approval_requested",
    "run.approved",
    "run.apply_started",
    "run.step_succeeded",
    "run.finished",
];
const JOB: &[&str] = &[
    "job.queued",
    "job.claimed",
    "job.started",
    "job.phase_entered",
    "job.phase_entered",
    "job.plan_produced",
    "job.succeeded",
    "job.log_finalized",
];
/// Number of runs per commit.
const TOGETHER: u64 = 30;
/// Ids in the examples, and the objects that they belong to.
const APP: &str = "app_00000000000000000000000001";
const RUN_OF_INSTALL: &str = "run_0000000000000000000000000B";
const INSTALL_OF_RUN: &str = "ins_00000000000000000000000005";
const JOBS_OF_RUN: [&str; 2] = ["job_00000000000000000000000035", "job_00000000000000000000000036"];
const EXECUTION: &str = "exe_00000000000000000000000001";

pub struct History {
    examples: BTreeMap<String, NewEvent>,
    /// App of all installs.
    app: String,
    versions: BTreeMap<u64, u64>,
    runs: u64,
    signers: Vec<Signer>,
    /// Manifest of all jobs.
    manifest: String,
    /// Length and digest of all job logs.
    finalized: Value,
}

impl History {
    /// A history of 1,000 installs of this app, or of an app that does not exist.
    pub fn of(app: Option<&str>) -> History {
        History::of_installs(app, 1_000)
    }

    /// A history of this many installs.
    pub fn of_installs(app: Option<&str>, installs: u64) -> History {
        let app = app.unwrap_or(APP).to_string();
        let (examples, signers) = (examples(), (0..installs).map(Signer::of).collect());
        let read = |name: &str| serde_json::from_str::<Value>(&examples[name].payload).unwrap();
        let manifest = read("job.queued")["manifest"].as_str().unwrap().to_owned();
        let finalized = read("job.log_finalized");
        let versions = BTreeMap::new();
        History { examples, app, versions, runs: 0, signers, manifest, finalized }
    }

    /// Writes until the log has this many events, a few runs per commit. Ends with a complete run.
    pub async fn fill(&mut self, log: &EventLog, size: u64) {
        while log.position() < size {
            let writes = (0..TOGETHER).flat_map(|_| self.run()).collect();
            let meta = Meta::new(Actor::System, Ulid::new().to_string());
            log.append(Commit::of(meta, writes)).await.unwrap();
        }
    }

    /// Writes runs of one more install until its stream has this many events. Returns its id.
    pub async fn one_install(&mut self, log: &EventLog, events: u64) -> String {
        let install = format!("ins_{}", Ulid::new());
        let mut expected = 0;
        while expected < events {
            let mut all = vec![];
            if expected == 0 {
                all.push(self.event("install.created", &[(APP, &self.app), ("acme", &install)]));
            }
            for _ in 0..TOGETHER {
                let run = format!("run_{}", Ulid::new());
                let own = [(RUN_OF_INSTALL, &*run)];
                all.extend(INSTALL.iter().map(|name| self.event(name, &own)));
            }
            all.truncate(usize::try_from(events - expected).unwrap());
            let count = all.len() as u64;
            let write =
                Write { stream: StreamId::new("install", &*install), expected, events: all };
            let meta = Meta::new(Actor::System, Ulid::new().to_string());
            log.append(Commit::of(meta, vec![write])).await.unwrap();
            expected += count;
        }
        install
    }

    /// Events of one run of the next install.
    fn run(&mut self) -> Vec<Write> {
        let number = self.runs % self.signers.len() as u64;
        self.runs += 1;
        let version = self.versions.entry(number).or_default();
        let expected = *version;
        let install = format!("ins_{}", Ulid(u128::from(number) + 1));
        let run = format!("run_{}", Ulid::new());
        let jobs = [(); 2].map(|()| format!("job_{}", Ulid::new()));
        let execution = format!("exe_{}", Ulid::new());
        let created = (expected == 0).then_some("install.created");
        let names: Vec<_> = created.into_iter().chain(INSTALL.iter().copied()).collect();
        *version += names.len() as u64;
        let name = format!("acme-{number}");
        let [plan, apply] = &jobs;
        let signer = &self.signers[number as usize];
        let own: [(&str, &str); 8] = [
            (APP, &self.app),
            ("acme", &name),
            (RUN_OF_INSTALL, &run),
            (INSTALL_OF_RUN, &install),
            (JOBS_OF_RUN[0], plan),
            (JOBS_OF_RUN[1], apply),
            (EXECUTION, &execution),
            (RUNNER, &signer.id),
        ];
        let write = |kind: &str, id: &str, expected: u64, names: &[&str]| Write {
            stream: StreamId::new(kind, id),
            expected,
            events: names.iter().map(|name| self.event(name, &own)).collect(),
        };
        let signed = |job: &str| {
            let mut write = write("job", job, 0, JOB);
            for event in &mut write.events {
                self.sign(signer, (job, &execution, &self.manifest), event);
            }
            write
        };
        let enrolled = (expected == 0).then(|| Write {
            stream: StreamId::new("runner", &*signer.id),
            expected: 0,
            events: vec![self.enrolled(signer, &install)],
        });
        let writes = [
            write("install", &install, expected, &names),
            write("run", &run, 0, RUN),
            signed(plan),
            signed(apply),
        ];
        enrolled.into_iter().chain(writes).collect()
    }

    fn enrolled(&self, signer: &Signer, install: &str) -> NewEvent {
        let mut event = self.event("runner.enrolled", &[]);
        let mut payload: Value = serde_json::from_str(&event.payload).unwrap();
        payload["identity_key"] = (*signer.public).into();
        payload["install"] = install.into();
        event.payload = payload.to_string();
        event
    }

    /// Signs the reports of a runner on a job.
    fn sign(&self, signer: &Signer, of: Of<'_>, event: &mut NewEvent) {
        let mut payload: Value = serde_json::from_str(&event.payload).unwrap();
        match &*event.event_type {
            "job.plan_produced" => signer.plan(of, &mut payload),
            "job.succeeded" => signer.end(of, &self.finalized, &mut payload),
            _ => return,
        }
        event.payload = payload.to_string();
    }

    /// Returns an example event with other ids.
    fn event(&self, name: &str, own: &[(&str, &str)]) -> NewEvent {
        let mut event = self.examples.get(name).unwrap().clone();
        for (from, to) in own {
            if event.payload.contains(from) {
                event.payload = event.payload.replace(from, to);
            }
        }
        event
    }
}

fn examples() -> BTreeMap<String, NewEvent> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/events");
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_string();
        let text = std::fs::read_to_string(path.join("1.example.json")).unwrap();
        let mut payload: String = text.lines().map(str::trim_start).collect();
        if name == "job.queued" {
            let mut queued: Value = serde_json::from_str(&payload).unwrap();
            queued["origin"] = json!({
                "type": "step", "install": INSTALL_OF_RUN, "run": RUN_OF_INSTALL,
                "step": "stp_00000000000000000000000001",
            });
            payload = queued.to_string();
        }
        let event = NewEvent {
            event_type: name.clone().into(),
            event_version: "1".into(),
            payload,
            customer: None,
        };
        all.insert(name, event);
    }
    all
}
