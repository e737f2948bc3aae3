//! Directories of a runner for consecutive jobs, and a sink that records all reports.

use std::{
    collections::BTreeMap,
    fs, io,
    net::TcpListener,
    path::{Path, PathBuf},
    sync::Arc,
};

use domain::{
    digest::Digest,
    ids::{ExecutionId, InstallId, JobId},
};
use install_keys::{InstallKeys, Seed};
use oci_layout::{Blob, Layout, sha256};
use runner_agent::{
    artifacts::{ARTIFACT_TYPE, LAYER_TYPE, component, pack},
    isolation::Trial,
    journal::Stop,
    plugins::{
        Background, Cancel, JobContext, Outcome, PlanRecord, PluginError, Registry, Rules, Sink,
        StateAccess, Stream, run,
    },
    policy::Policy,
    state::{KnownState, StateKeys, StateMark, StateStore, executions_in_progress},
};
use schemas::{
    manifest::{self, AcceptedState, ArtifactRef, Fence, Limits, Manifest, PluginRef, Timeouts},
    runner::{Artifact, JobClass, JobKind, StateHead},
};
use serde_json::{Map, Value};
use tempfile::TempDir;
use ulid::Ulid;
use zeroize::Zeroizing;

use super::state_server::{StateServer, Uploads};

pub struct TestRunner {
    dir: TempDir,
    /// Parent of the work directories. If absent, it is the system's temporary directory.
    work_root: Option<PathBuf>,
    pub env: BTreeMap<String, String>,
    pub grace_ms: u64,
    /// Rules of the customer.
    pub rules: Rules,
    /// Known state from the runner's journal.
    pub known_state: KnownState,
    /// Known states of other components.
    pub known_states: BTreeMap<String, KnownState>,
    server: StateServer,
}

/// Fields of a manifest that differ between the tests.
#[derive(Clone)]
pub struct JobSpec {
    pub kind: JobKind,
    pub plugin: PluginRef,
    pub artifacts: Vec<ArtifactRef>,
    pub inputs: Value,
    pub plan: Option<Digest>,
    pub state: Option<manifest::KnownState>,
}

/// Everything that a job reported.
#[derive(Default)]
pub struct JobRecord {
    pub phases: Vec<String>,
    pub lines: Vec<(Stream, String)>,
    pub children: Vec<u32>,
    pub plan: Option<PlanRecord>,
    pub outputs: Option<Map<String, Value>>,
    /// Outputs that the shim encrypts.
    pub sensitive: Map<String, Value>,
    pub artifact: Option<Artifact>,
    pub checks: Vec<schemas::runner::Check>,
    pub state: Option<StateMark>,
    pub accepted: Option<AcceptedState>,
    /// Text of a line, or name of a phase, that triggers the action.
    pub at: Option<(String, Action)>,
}

pub enum Action {
    Cancel(Cancel),
    KillChild,
    /// Cancels at the beginning of the phase of that name, and not at a line.
    CancelInPhase(Cancel),
    /// Fails to record the children of the phase of that name in the journal.
    FailJournal,
}

/// Redaction of a job without a shim: the tests show no secret.
#[derive(Debug)]
struct Shown;

impl Background for Shown {
    fn secret(&self, _: Zeroizing<String>) {}
    fn line(&self, _: &str) {}
    fn state(&self, _: &str, _: &StateHead) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for JobRecord {
    fn phase(&mut self, name: &str) {
        if let Some((phase, Action::CancelInPhase(cancel))) = &self.at
            && phase == name
        {
            cancel.requested.cancel();
        }
        self.phases.push(name.into());
    }

    fn line(&mut self, stream: Stream, bytes: &[u8]) {
        let line = String::from_utf8_lossy(bytes).into_owned();
        match &self.at {
            Some((text, Action::Cancel(cancel))) if line.contains(text) => {
                cancel.requested.cancel()
            }
            Some((text, Action::KillChild)) if line.contains(text) => {
                let child = i32::try_from(*self.children.last().unwrap()).unwrap();
                let child = nix::unistd::Pid::from_raw(child);
                nix::sys::signal::killpg(child, nix::sys::signal::Signal::SIGKILL).unwrap();
            }
            Some(_) | None => {}
        }
        self.lines.push((stream, line));
    }

    fn child(&mut self, pid: u32, _: Stop) -> io::Result<()> {
        if let Some((phase, Action::FailJournal)) = &self.at
            && self.phases.last() == Some(phase)
        {
            return Err(io::Error::other("the journal cannot be written"));
        }
        self.children.push(pid);
        Ok(())
    }

    fn plan(&mut self, plan: PlanRecord) -> io::Result<()> {
        self.plan = Some(plan);
        Ok(())
    }

    fn outputs(
        &mut self,
        outputs: Map<String, Value>,
        sensitive: Map<String, Value>,
    ) -> io::Result<()> {
        self.outputs = Some(outputs);
        self.sensitive = sensitive;
        Ok(())
    }

    fn state(&mut self, _: &str, mark: &StateMark, _: Option<String>) -> io::Result<()> {
        self.state = Some(mark.clone());
        Ok(())
    }

    fn state_accepted(&mut self, _: &str, accepted: &AcceptedState) -> io::Result<()> {
        self.accepted = Some(accepted.clone());
        Ok(())
    }

    fn checks(&mut self, checks: Vec<schemas::runner::Check>) -> io::Result<()> {
        self.checks = checks;
        Ok(())
    }

    fn artifact(&mut self, artifact: Artifact) -> io::Result<()> {
        self.artifact = Some(artifact);
        Ok(())
    }
}

impl JobRecord {
    pub fn has(&self, text: &str) -> bool {
        self.lines.iter().any(|(_, line)| line.contains(text))
    }

    /// Returns the lines on the standard output of the job's processes.
    pub fn printed(&self) -> Vec<&str> {
        let printed = self.lines.iter().filter(|(stream, _)| *stream == Stream::Out);
        printed.map(|(_, line)| line.as_str()).collect()
    }
}

/// Returns the rules of a customer who allows everything. They need no trial of the host.
pub fn without_rules() -> Rules {
    let trial = Trial { runner: "/nonexistent".into(), dir: "/nonexistent".into() };
    Rules { policy: Policy::without_rules(), publishers: Vec::new(), trial }
}

impl TestRunner {
    pub fn new() -> Self {
        TestRunner::in_dir(tempfile::tempdir().unwrap(), None)
    }

    /// Returns a test runner with everything on this disk.
    pub fn on(disk: &Path) -> Self {
        TestRunner::in_dir(tempfile::tempdir_in(disk).unwrap(), Some(disk.to_owned()))
    }

    fn in_dir(dir: TempDir, work_root: Option<PathBuf>) -> Self {
        let runner = TestRunner {
            dir,
            work_root,
            env: BTreeMap::new(),
            grace_ms: 20_000,
            rules: without_rules(),
            known_state: KnownState::default(),
            known_states: BTreeMap::new(),
            server: StateServer::start(Uploads::Accept),
        };
        for name in ["state", "artifacts", "plugins", "plans"] {
            fs::create_dir(runner.at(name)).unwrap();
        }
        runner
    }

    /// Lets the server respond in this way to each upload of a state.
    pub fn set_uploads(&self, uploads: Uploads) {
        self.server.set_uploads(uploads);
    }

    /// Lets the server lose all states.
    pub fn forget_states(&self) {
        self.server.restore(0);
    }

    fn keys(component: &str) -> StateKeys {
        let keys = InstallKeys::new(&Seed::from_bytes(&[7; 32]), 1);
        StateKeys::derive(&keys, "log", InstallId(Ulid::nil()), [component])
    }

    /// Returns the store of the component `web`, with its keys.
    pub fn store(&self) -> StateStore {
        let cipher = TestRunner::keys("web").component("web");
        StateStore::new(&self.at("state"), "web").with_cipher(cipher)
    }

    /// Returns the state of the component `web`.
    pub fn state(&self) -> Value {
        let state = self.store().read().unwrap().unwrap();
        serde_json::from_slice(&state).unwrap()
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Stores a component's source in the install's layout, where a deploy reads it.
    pub fn artifact(&self, files: &[(&str, &str)]) -> ArtifactRef {
        let source = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = source.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let mut tar = Vec::new();
        pack(source.path(), &mut tar).unwrap();
        let layout = Layout::new(self.at("artifacts"));
        layout.put(&tar).unwrap();
        layout.put(b"{}").unwrap();
        let artifact = component(&Blob::of(LAYER_TYPE, &tar), "");
        assert_eq!(artifact.image().artifact_type(), &Some(ARTIFACT_TYPE.into()));
        let digest = layout.put(&artifact.to_bytes().unwrap()).unwrap();
        ArtifactRef { repository: "shop/web".into(), digest, size: tar.len() as u64 }
    }

    /// Installs an executable as a plugin. Returns its reference for the manifest.
    pub fn plugin(&self, name: &str, executable: &Path) -> PluginRef {
        let bytes = fs::read(executable).unwrap();
        let path = self.at("plugins").join(format!("stead-plugin-{name}"));
        fs::write(path, &bytes).unwrap();
        let digest = Some(sha256(&bytes));
        PluginRef { name: name.into(), version: "1".into(), digest, artifact: None }
    }

    pub async fn job(&self, spec: &JobSpec) -> (Result<Outcome, PluginError>, JobRecord) {
        let context = self.context(&self.manifest(spec));
        self.run(spec, context, None).await
    }

    /// Runs a job and cancels it at a line that contains this text.
    pub async fn job_until(
        &self,
        spec: &JobSpec,
        text: &str,
    ) -> (Result<Outcome, PluginError>, JobRecord) {
        let context = self.context(&self.manifest(spec));
        let action = Action::Cancel(context.cancel.clone());
        self.run(spec, context, Some((text.to_owned(), action))).await
    }

    /// Runs a job and kills the process group of its child at a line that contains this text.
    pub async fn job_killed(
        &self,
        spec: &JobSpec,
        text: &str,
    ) -> (Result<Outcome, PluginError>, JobRecord) {
        let context = self.context(&self.manifest(spec));
        self.run(spec, context, Some((text.to_owned(), Action::KillChild))).await
    }

    /// Runs a job and cancels it at the beginning of this phase.
    pub async fn job_cancelled_in(
        &self,
        spec: &JobSpec,
        phase: &str,
    ) -> (Result<Outcome, PluginError>, JobRecord) {
        let context = self.context(&self.manifest(spec));
        let action = Action::CancelInPhase(context.cancel.clone());
        self.run(spec, context, Some((phase.to_owned(), action))).await
    }

    /// Runs a job whose children in this phase cannot be recorded in the journal.
    pub async fn job_without_journal_in(
        &self,
        spec: &JobSpec,
        phase: &str,
    ) -> (Result<Outcome, PluginError>, JobRecord) {
        let context = self.context(&self.manifest(spec));
        self.run(spec, context, Some((phase.to_owned(), Action::FailJournal))).await
    }

    async fn run(
        &self,
        spec: &JobSpec,
        context: JobContext,
        at: Option<(String, Action)>,
    ) -> (Result<Outcome, PluginError>, JobRecord) {
        let mut record = JobRecord { at, ..JobRecord::default() };
        let result = run(&self.manifest(spec), &context, &mut record).await;
        // The shim also keeps the work directory of an apply in progress.
        let in_progress = executions_in_progress(&context.state_dir).unwrap();
        if !in_progress.contains(&context.execution) {
            fs::remove_dir_all(&context.work_dir).unwrap();
        }
        (result, record)
    }

    fn context(&self, manifest: &Manifest) -> JobContext {
        let bytes = proof::canonical::json(manifest).unwrap();
        JobContext {
            work_dir: self.work_dir().keep(),
            state_dir: self.at("state"),
            artifacts_dir: self.at("artifacts"),
            plugin_dir: self.at("plugins"),
            plans_dir: self.at("plans"),
            env: self.env.clone(),
            git_env: BTreeMap::new(),
            kubeconfig_allows: Default::default(),
            background: Arc::new(Shown),
            sandbox: None,
            cancel: Cancel::default(),
            registry: Registry {
                base_url: self.server.url.clone(),
                token: "none".into(),
                http: client(),
                idle_timeout: Registry::IDLE_TIMEOUT,
                observer: None,
            },
            images: Default::default(),
            job: manifest.job,
            execution: ExecutionId(Ulid::new()),
            rules: Some(self.rules.clone()),
            known_state: self.known_state.clone(),
            known_states: self.known_states.clone(),
            state: Some(StateAccess {
                keys: TestRunner::keys(manifest.inputs["component"].as_str().unwrap_or_default()),
                fence: Fence { epoch: 1, position: 7 },
            }),
            state_port: Some(Arc::new(TcpListener::bind("127.0.0.1:0").unwrap())),
            manifest_digest: sha256(&bytes),
            unfilled_inputs: None,
        }
    }

    fn work_dir(&self) -> TempDir {
        match &self.work_root {
            Some(root) => tempfile::tempdir_in(root).unwrap(),
            None => tempfile::tempdir().unwrap(),
        }
    }

    fn manifest(&self, spec: &JobSpec) -> Manifest {
        Manifest {
            version: 1,
            job: JobId(Ulid::new()),
            kind: spec.kind,
            class: JobClass::Mutating,
            plugin: spec.plugin.clone(),
            artifacts: spec.artifacts.clone(),
            inputs: spec.inputs.clone(),
            env: BTreeMap::new(),
            role: None,
            limits: Limits { memory_bytes: None, output_bytes: 1 << 20 },
            timeouts: Timeouts {
                deadline_ms: 600_000,
                grace_ms: self.grace_ms,
                no_output_ms: None,
            },
            plan: spec.plan.clone(),
            state: spec.state.clone(),
            secrets: vec![],
        }
    }
}

fn client() -> reqwest::Client {
    // Only the first call of a process succeeds. All tests use the same provider.
    let _first = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

/// Waits until no process of this group runs.
pub async fn wait_until_ended(group: u32) {
    for _ in 0..100 {
        if !alive(group) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("a process of group {group} still runs");
}

/// Returns whether a process of this group runs. A zombie does not count.
fn alive(group: u32) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let stats = processes.filter_map(|dir| fs::read_to_string(dir.path().join("stat")).ok());
    stats.into_iter().any(|stat| {
        let after_name: Vec<&str> = stat[stat.rfind(')').unwrap() + 1..].split(' ').collect();
        let (state, of) = (after_name[1], after_name[3]);
        of == group.to_string() && !matches!(state, "Z" | "X")
    })
}
