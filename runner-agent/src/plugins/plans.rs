//! Stores plan files by the digest that an approval covers.
//!
//! ```text
//! <plans_dir>/<64 digits>/record.json    everything that the digest covers, except the file
//!                         plan           the plan file
//!                         beside/<name>  further files that the apply needs
//!                         begun          execution that began to apply the plan; never applied again
//! ```
//!
//! A plan file can contain secrets: files have mode 0600, directories 0700. The runner uses
//! a stored plan only after it has recomputed the approved digest.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use domain::digest::Digest;
use oci_layout::{sha256, sha256_file};
use schemas::manifest::Manifest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    contract::{PlanRecord, PluginError},
    plugin::{IoContext, Operation, Planned, Work},
    work::{private_dir, write_private},
};
use crate::{host, state::StateMark};

/// Age at which a plan is removed.
const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// File with the id of the execution that began to apply the plan.
const BEGUN: &str = "begun";

/// Summary that an approver reads, with the inputs of the plan. It contains names and never values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    version: u32,
    component: String,
    operation: Operation,
    #[serde(flatten)]
    changes: super::plugin::Changes,
    reads: PlanInputs,
}

/// Inputs of a plan. The plan is stale if any of them differs at the apply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlanInputs {
    /// SHA-256 of the rendered part of the manifest, `{env, inputs, role}`, as RFC 8785 JSON.
    inputs: Digest,
    artifacts: Vec<Digest>,
    /// Plugin that made the plan. Plans of earlier runners do not have it, and are stale.
    #[serde(default)]
    plugin: Option<PlanPlugin>,
    state: StateMark,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    beside: BTreeMap<String, Digest>,
}

/// Plugin of a plan. The digest is that of the published artifact or of the installed executable. A
/// plugin that is built into the runner has none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct PlanPlugin {
    name: String,
    version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<Digest>,
}

#[derive(Serialize, Deserialize)]
struct Record {
    file: Digest,
    summary: Value,
    manifest: Digest,
    tool: String,
}

/// Approved plan that matches its digest and the manifest of the apply.
pub(crate) struct ApprovedPlan {
    /// Path of the plan file.
    pub file: PathBuf,
    /// Paths of the further files, by name.
    pub extra_files: BTreeMap<String, PathBuf>,
    pub tool: String,
    pub operation: Operation,
    pub state: StateMark,
    dir: PathBuf,
}

/// Stores a plan under its digest.
pub(crate) fn store(
    work: &Work<'_>,
    planned: Planned,
    state: StateMark,
) -> Result<PlanRecord, PluginError> {
    let plans = &work.job.plans_dir;
    private_dir(plans)?;
    remove_old(plans);
    let context = || "cannot store a plan".to_owned();
    let staging = tempfile::Builder::new().prefix(".arriving-").tempdir_in(plans).doing(context)?;
    private_dir(staging.path())?;
    private_dir(&staging.path().join("beside"))?;
    let file = copy_private(&planned.file, &staging.path().join("plan"))?;
    let mut beside = BTreeMap::new();
    for (name, path) in planned.extra_files {
        let digest = copy_private(&path, &staging.path().join("beside").join(&name))?;
        beside.insert(name, digest);
    }
    let changes = planned.changes;
    let (noop, add, change, destroy) = (changes.noop, changes.add, changes.change, changes.destroy);
    let (inputs, artifacts) = (inputs_of(work)?, artifacts_of(work));
    let plugin = Some(PlanPlugin::of(work));
    let reads = PlanInputs { inputs, artifacts, plugin, state, beside };
    let component = work.name.to_owned();
    let summary = Summary { version: 1, component, operation: work.operation, changes, reads };
    let summary = serde_json::to_value(summary).map_err(io::Error::from).doing(context)?;
    let manifest = work.job.manifest_digest.clone();
    let record = Record { file, summary, manifest, tool: planned.tool };
    let (digest, summary_digest) = digests(&record)?;
    let bytes = serde_json::to_vec(&record).map_err(io::Error::from).doing(context)?;
    write_private(&staging.path().join("record.json"), &bytes)?;
    let dir = plan_dir(plans, &digest);
    if is_stored(&dir, &record, &digest) {
        // The same plan is stored already and stays: a running apply may use its files, and a
        // `begun` file prevents a second apply.
        let _stays_as_old_as_it_was =
            fs::File::open(&dir).and_then(|dir| dir.set_modified(host::system_time()));
    } else {
        if dir.exists() {
            fs::remove_dir_all(&dir).doing(context)?;
        }
        fs::rename(staging.keep(), &dir).doing(context)?;
        fs::File::open(plans).and_then(|plans| plans.sync_all()).doing(context)?;
    }
    let Record { file, summary, tool, .. } = record;
    Ok(PlanRecord { digest, file, summary, summary_digest, noop, add, change, destroy, tool })
}

/// Returns true if this plan is stored and is either complete or begun.
fn is_stored(dir: &Path, record: &Record, digest: &Digest) -> bool {
    let stored = fs::read(dir.join("record.json")).ok();
    let stored = stored.and_then(|bytes| serde_json::from_slice::<Record>(&bytes).ok());
    let matches =
        stored.is_some_and(|stored| digests(&stored).is_ok_and(|(stored, _)| stored == *digest));
    let is_complete = || sha256_file(&dir.join("plan")).is_ok_and(|file| file == record.file);
    matches && (dir.join(BEGUN).exists() || is_complete())
}

/// Returns the approved plan if it is stored, matches its digest and this manifest, and no
/// execution has begun to apply it.
pub(crate) fn find(
    work: &Work<'_>,
    approved: &Digest,
) -> Result<(ApprovedPlan, PlanInputs), PluginError> {
    let stale = |why: &str| PluginError::PlanStale(why.to_owned());
    let dir = plan_dir(&work.job.plans_dir, approved);
    let read = || format!("cannot read the plan {approved}");
    let record = match fs::read(dir.join("record.json")) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(stale(&format!("this runner has no file of the plan {approved}")));
        }
        bytes => bytes.doing(read)?,
    };
    let changed = || stale("the plan on this runner is not the approved one");
    let mut record: Record = serde_json::from_slice(&record).map_err(|_| changed())?;
    record.file = sha256_file(&dir.join("plan")).map_err(|_| changed())?;
    if digests(&record)?.0 != *approved {
        return Err(changed());
    }
    let summary: Summary = serde_json::from_value(record.summary).map_err(|_| changed())?;
    if summary.component != work.name || summary.operation != work.operation {
        return Err(stale("the plan was made for another component or operation"));
    }
    if let Ok(execution) = fs::read_to_string(dir.join(BEGUN)) {
        return Err(stale(&format!("{execution} has begun to apply it")));
    }
    let reads = summary.reads;
    if reads.inputs != inputs_of(work)? {
        return Err(stale("the inputs, the environment or the role have changed"));
    }
    if reads.artifacts != artifacts_of(work) {
        return Err(stale("the artifact has changed"));
    }
    if reads.plugin != Some(PlanPlugin::of(work)) {
        return Err(stale("the plugin has changed"));
    }
    let mut beside = BTreeMap::new();
    for (name, digest) in &reads.beside {
        let path = dir.join("beside").join(name);
        if sha256_file(&path).map_err(|_| changed())? != *digest {
            return Err(changed());
        }
        beside.insert(name.clone(), path);
    }
    let (file, tool, operation) = (dir.join("plan"), record.tool, summary.operation);
    let state = reads.state.clone();
    Ok((ApprovedPlan { file, extra_files: beside, tool, operation, state, dir }, reads))
}

/// Returns the summary of a plan, if it is stored here and matches its digest.
pub(crate) fn summary(plans: &Path, approved: &Digest) -> Option<Value> {
    let dir = plan_dir(plans, approved);
    let mut record: Record =
        serde_json::from_slice(&fs::read(dir.join("record.json")).ok()?).ok()?;
    record.file = sha256_file(&dir.join("plan")).ok()?;
    (digests(&record).ok()?.0 == *approved).then_some(record.summary)
}

impl PlanPlugin {
    fn of(work: &Work<'_>) -> Self {
        let plugin = &work.manifest.plugin;
        let published = plugin.artifact.as_ref().map(|artifact| &artifact.digest);
        let digest = published.or(plugin.digest.as_ref()).cloned();
        PlanPlugin { name: plugin.name.clone(), version: plugin.version.clone(), digest }
    }
}

impl PlanInputs {
    /// Returns an error if the state changed since the plan.
    pub(crate) fn same_state(&self, now: &StateMark) -> Result<(), PluginError> {
        if self.state == *now {
            return Ok(());
        }
        let name = |mark: &StateMark| {
            let lineage = mark.lineage.as_deref().unwrap_or("none");
            format!("lineage {lineage} serial {}", mark.serial)
        };
        let (then, now) = (name(&self.state), name(now));
        Err(PluginError::PlanStale(format!("the state was {then} and is {now}")))
    }
}

impl ApprovedPlan {
    /// Records that the apply begins. The record is on disk before the first change, so that no
    /// crash leads to a second apply.
    ///
    /// The state cannot replace this record: after a tool was killed, the state may look unchanged.
    pub(crate) fn begin(&self, work: &Work<'_>) -> Result<(), PluginError> {
        write_private(&self.dir.join(BEGUN), work.job.execution.to_string().as_bytes())?;
        let sync = || "cannot record the start of an apply".to_owned();
        fs::File::open(&self.dir).and_then(|dir| dir.sync_all()).doing(sync)
    }

    /// Removes an applied plan. It can never be applied again, so its secrets need not stay on
    /// disk.
    pub(crate) fn remove(self) {
        let _stays_until_it_is_old = fs::remove_dir_all(self.dir);
    }
}

fn digests(record: &Record) -> Result<(Digest, Digest), PluginError> {
    let summary = proof::canonical::json(&record.summary).map_err(|e| {
        PluginError::PluginFailed(format!("cannot serialize the summary of the plan: {e}"))
    })?;
    let summary = sha256(&summary);
    let (file, manifest) = (record.file.bytes(), record.manifest.bytes());
    let hash = proof::plan::digest_of(&file, &summary.bytes(), &manifest, &record.tool);
    let digest = proof::digest_text(&hash).parse().map_err(io::Error::other);
    Ok((digest.doing(|| "cannot format a digest".into())?, summary))
}

fn inputs_of(work: &Work<'_>) -> Result<Digest, PluginError> {
    let Manifest { inputs, env, role, .. } = work.manifest;
    let bytes = proof::canonical::json(&json!({ "inputs": inputs, "env": env, "role": role }))
        .map_err(|e| {
            PluginError::Refused(format!("cannot serialize the manifest's inputs: {e}"))
        })?;
    Ok(sha256(&bytes))
}

fn artifacts_of(work: &Work<'_>) -> Vec<Digest> {
    work.manifest.artifacts.iter().map(|artifact| artifact.digest.clone()).collect()
}

fn plan_dir(plans: &Path, digest: &Digest) -> PathBuf {
    plans.join(&digest.to_string()["sha256:".len()..])
}

fn copy_private(from: &Path, to: &Path) -> Result<Digest, PluginError> {
    let copy = || format!("cannot copy {}", from.display());
    // A link could lead to a file that the plugin did not write.
    if !fs::symlink_metadata(from).doing(copy)?.is_file() {
        return Err(PluginError::PluginFailed(format!(
            "cannot store {}: it is not a regular file",
            from.display()
        )));
    }
    let bytes = fs::read(from).doing(copy)?;
    write_private(to, &bytes)?;
    Ok(sha256(&bytes))
}

fn remove_old(plans: &Path) {
    let now = host::system_time();
    for entry in fs::read_dir(plans).into_iter().flatten().flatten() {
        let modified = entry.metadata().and_then(|meta| meta.modified());
        let age = modified.ok().and_then(|then| now.duration_since(then).ok());
        if age.is_some_and(|age| age > MAX_AGE) {
            let _next_time = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::{Cancel, JobContext, Registry, plugin::Changes};
    use domain::ids::{ExecutionId, JobId};

    fn context(root: &Path) -> JobContext {
        // The first test of the process installs the TLS provider. Further calls fail, and the
        // tests ignore the error.
        let _first = rustls::crypto::ring::default_provider().install_default();
        let (base_url, token, http) = (String::new(), String::new(), reqwest::Client::new());
        JobContext {
            work_dir: root.join("work"),
            state_dir: root.join("state"),
            artifacts_dir: root.join("artifacts"),
            plugin_dir: root.join("plugins"),
            plans_dir: root.join("plans"),
            env: BTreeMap::new(),
            git_env: BTreeMap::new(),
            kubeconfig_allows: Default::default(),
            background: std::sync::Arc::new(crate::plugins::contract::NoShim),
            wrapper: Vec::new(),
            cancel: Cancel::default(),
            registry: Registry { base_url, token, http, idle_timeout: Registry::IDLE_TIMEOUT },
            job: JobId(ulid::Ulid::nil()),
            execution: ExecutionId(ulid::Ulid::nil()),
            known_state: crate::state::KnownState::default(),
            manifest_digest: sha256(b"manifest"),
        }
    }

    #[test]
    fn a_plan_is_stale_after_a_change_of_its_inputs() {
        let dir = tempfile::tempdir().unwrap();
        let job = context(dir.path());
        let manifest = json!({
            "version": 1, "job": job.job, "kind": "plan", "class": "pure",
            "plugin": {"name": "odd", "version": "1"}, "inputs": {"component": "web"},
            "env": {"ENDPOINT": "a"}, "role": "maintenance",
            "limits": {"output_bytes": 1}, "timeouts": {"deadline_ms": 1, "grace_ms": 1},
        });
        let read = |value: &Value| serde_json::from_value::<Manifest>(value.clone()).unwrap();
        let whole = read(&manifest);
        let work = Work::new(&whole, &job).unwrap();
        let file = job.work_dir.join("plan");
        fs::write(&file, "all of it").unwrap();
        let (beside, changes) = (BTreeMap::new(), Changes::default());
        let planned = Planned { file, extra_files: beside, tool: "odd 1".into(), changes };
        let digest = store(&work, planned, StateMark::default()).unwrap().digest;
        assert!(find(&work, &digest).is_ok());
        for (key, value) in [
            ("inputs", json!({"component": "web", "vars": {"size": "2"}})),
            ("env", json!({"ENDPOINT": "b"})),
            ("env", json!({})),
            ("role", json!("provision")),
        ] {
            let mut other = manifest.clone();
            other[key] = value;
            let other = read(&other);
            let stale = find(&Work::new(&other, &job).unwrap(), &digest).err().unwrap();
            assert!(stale.to_string().contains("have changed"), "{key}: {stale}");
        }
        let (one, other) = (format!("sha256:{:064}", 1), format!("sha256:{:064}", 2));
        let artifact =
            json!({"repository": "stead.plugins/odd", "digest": other, "size": 1, "publisher": ""});
        for plugin in [
            json!({"name": "even", "version": "1"}),
            json!({"name": "odd", "version": "2"}),
            json!({"name": "odd", "version": "1", "digest": one}),
            json!({"name": "odd", "version": "1", "artifact": artifact}),
        ] {
            let mut changed = manifest.clone();
            changed["plugin"] = plugin.clone();
            let changed = read(&changed);
            let stale = find(&Work::new(&changed, &job).unwrap(), &digest).err().unwrap();
            assert!(stale.to_string().contains("the plugin has changed"), "{plugin}: {stale}");
        }
    }

    #[test]
    fn storing_a_plan_again_keeps_its_begun_file() {
        let dir = tempfile::tempdir().unwrap();
        let job = context(dir.path());
        let manifest: Manifest = serde_json::from_value(json!({
            "version": 1, "job": job.job, "kind": "plan", "class": "pure",
            "plugin": {"name": "odd", "version": "1"}, "inputs": {"component": "web"},
            "limits": {"output_bytes": 1}, "timeouts": {"deadline_ms": 1, "grace_ms": 1},
        }))
        .unwrap();
        let work = Work::new(&manifest, &job).unwrap();
        let file = job.work_dir.join("plan");
        let planned = |text: &str| {
            fs::write(&file, text).unwrap();
            let (beside, changes) = (BTreeMap::new(), Changes::default());
            let planned =
                Planned { file: file.clone(), extra_files: beside, tool: "odd 1".into(), changes };
            store(&work, planned, StateMark::default()).unwrap().digest
        };
        let digest = planned("all of it");
        let (approved, _) = find(&work, &digest).unwrap();
        approved.begin(&work).unwrap();
        assert_eq!(planned("all of it"), digest);
        let again = find(&work, &digest).err().unwrap();
        assert!(again.to_string().contains("has begun to apply it"), "{again}");
        assert_ne!(planned("another"), digest);
    }
}
