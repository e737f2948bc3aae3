//! Plan files at rest, by the digest that a person approves.
//!
//! ```text
//! <plans_dir>/<64 digits>/record.json    what the digest covers but for the file
//!                         plan           the plan file
//!                         beside/<name>  what the apply needs with it
//!                         begun          the execution that has begun to apply it: never again
//! ```
//!
//! A plan file can hold secrets: everything is 0600 in directories that are 0700. What is read back is
//! believed only as far as the approved digest covers it.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use domain::digest::Digest;
use schemas::manifest::Manifest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    contract::{PlanRecord, PluginError},
    plugin::{Doing, Operation, Planned, Work},
    work::{private_dir, write_private},
};
use crate::{
    artifacts::{sha256, sha256_file},
    state::StateMark,
};

/// A plan that nobody has applied by then is not applied any more.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// Names the execution that has begun to apply the plan.
const BEGUN: &str = "begun";

/// What the person reads, and what the plan was made from. Redacted: names, never values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    version: u32,
    component: String,
    operation: Operation,
    #[serde(flatten)]
    changes: super::plugin::Changes,
    reads: Reads,
}

/// If any of this is different at the apply, the plan is stale.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reads {
    /// SHA-256 of what was rendered, `{env, inputs, role}` of the manifest, as RFC 8785 JSON.
    inputs: Digest,
    artifacts: Vec<Digest>,
    state: StateMark,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    beside: BTreeMap<String, Digest>,
}

#[derive(Serialize, Deserialize)]
struct Record {
    file: Digest,
    summary: Value,
    manifest: Digest,
    tool: String,
}

/// An approved plan that is what was approved, and that nothing has made stale.
pub(crate) struct Approved {
    /// The plan file.
    pub file: PathBuf,
    /// What lies beside it, by name.
    pub beside: BTreeMap<String, PathBuf>,
    pub tool: String,
    pub operation: Operation,
    pub state: StateMark,
    dir: PathBuf,
}

/// Keep a plan under its digest.
pub(crate) fn keep(
    work: &Work<'_>,
    planned: Planned,
    state: StateMark,
) -> Result<PlanRecord, PluginError> {
    let plans = &work.job.plans_dir;
    private_dir(plans)?;
    forget_old(plans);
    let keep = || "cannot keep a plan".to_owned();
    let arriving = tempfile::Builder::new().prefix(".arriving-").tempdir_in(plans).doing(keep)?;
    private_dir(arriving.path())?;
    private_dir(&arriving.path().join("beside"))?;
    let file = copy_private(&planned.file, &arriving.path().join("plan"))?;
    let mut beside = BTreeMap::new();
    for (name, path) in planned.beside {
        let digest = copy_private(&path, &arriving.path().join("beside").join(&name))?;
        beside.insert(name, digest);
    }
    let changes = planned.changes;
    let (noop, add, change, destroy) = (changes.noop, changes.add, changes.change, changes.destroy);
    let reads = Reads { inputs: inputs_of(work)?, artifacts: artifacts_of(work), state, beside };
    let component = work.name.to_owned();
    let summary = Summary { version: 1, component, operation: work.operation, changes, reads };
    let summary = serde_json::to_value(summary).map_err(io::Error::from).doing(keep)?;
    let manifest = work.job.manifest_digest.clone();
    let record = Record { file, summary, manifest, tool: planned.tool };
    let (digest, summary_digest) = digests(&record)?;
    let bytes = serde_json::to_vec(&record).map_err(io::Error::from).doing(keep)?;
    write_private(&arriving.path().join("record.json"), &bytes)?;
    let home = place(plans, &digest);
    if is_kept(&home, &record, &digest) {
        // The same plan again: whoever has begun to apply it goes on, and nobody begins it twice.
        let _stays_as_old_as_it_was =
            fs::File::open(&home).and_then(|home| home.set_modified(SystemTime::now()));
    } else {
        if home.exists() {
            fs::remove_dir_all(&home).doing(keep)?;
        }
        fs::rename(arriving.keep(), &home).doing(keep)?;
        fs::File::open(plans).and_then(|plans| plans.sync_all()).doing(keep)?;
    }
    let Record { file, summary, tool, .. } = record;
    Ok(PlanRecord { digest, file, summary, summary_digest, noop, add, change, destroy, tool })
}

/// Whether this very plan is there, whole or begun.
fn is_kept(home: &Path, record: &Record, digest: &Digest) -> bool {
    let kept = fs::read(home.join("record.json")).ok();
    let kept = kept.and_then(|bytes| serde_json::from_slice::<Record>(&bytes).ok());
    let same = kept.is_some_and(|kept| digests(&kept).is_ok_and(|(kept, _)| kept == *digest));
    let whole = || sha256_file(&home.join("plan")).is_ok_and(|file| file == record.file);
    same && (home.join(BEGUN).exists() || whole())
}

/// Find the plan that was approved, if it is still here, still itself and still about this manifest.
pub(crate) fn find(work: &Work<'_>, approved: &Digest) -> Result<(Approved, Reads), PluginError> {
    let stale = |why: &str| PluginError::PlanStale(why.to_owned());
    let dir = place(&work.job.plans_dir, approved);
    let read = || format!("cannot read the plan {approved}");
    let record = match fs::read(dir.join("record.json")) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(stale("this runner has no plan file of that digest"));
        }
        bytes => bytes.doing(read)?,
    };
    let changed = || stale("the plan on this runner is not what was approved");
    let mut record: Record = serde_json::from_slice(&record).map_err(|_| changed())?;
    record.file = sha256_file(&dir.join("plan")).map_err(|_| changed())?;
    if digests(&record)?.0 != *approved {
        return Err(changed());
    }
    let summary: Summary = serde_json::from_value(record.summary).map_err(|_| changed())?;
    if summary.component != work.name || summary.operation != work.operation {
        return Err(stale("it was made for another component or operation"));
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
    Ok((Approved { file, beside, tool, operation, state, dir }, reads))
}

/// Returns the summary of a plan, if it is stored here and matches its digest.
pub(crate) fn summary(plans: &Path, approved: &Digest) -> Option<Value> {
    let dir = place(plans, approved);
    let mut record: Record =
        serde_json::from_slice(&fs::read(dir.join("record.json")).ok()?).ok()?;
    record.file = sha256_file(&dir.join("plan")).ok()?;
    (digests(&record).ok()?.0 == *approved).then_some(record.summary)
}

impl Reads {
    /// The last thing that can have changed.
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

impl Approved {
    /// On disk before the first effect: whatever dies from here on, this plan is not applied twice. A tool
    /// that is killed may leave a state that looks untouched.
    pub(crate) fn begin(&self, work: &Work<'_>) -> Result<(), PluginError> {
        write_private(&self.dir.join(BEGUN), work.job.execution.to_string().as_bytes())?;
        let sync = || "cannot write down that an apply begins".to_owned();
        fs::File::open(&self.dir).and_then(|dir| dir.sync_all()).doing(sync)
    }

    /// It was applied: it can never be applied again, so its secrets need not rest here.
    pub(crate) fn forget(self) {
        let _stays_until_it_is_old = fs::remove_dir_all(self.dir);
    }
}

fn digests(record: &Record) -> Result<(Digest, Digest), PluginError> {
    let summary = proof::canonical::json(&record.summary)
        .map_err(|e| PluginError::PluginFailed(format!("the summary of its plan: {e}")))?;
    let summary = sha256(&summary);
    let (file, manifest) = (record.file.bytes(), record.manifest.bytes());
    let hash = proof::plan::digest_of(&file, &summary.bytes(), &manifest, &record.tool);
    let digest = proof::digest_text(&hash).parse().map_err(io::Error::other);
    Ok((digest.doing(|| "cannot spell a digest".into())?, summary))
}

fn inputs_of(work: &Work<'_>) -> Result<Digest, PluginError> {
    let Manifest { inputs, env, role, .. } = work.manifest;
    let bytes = proof::canonical::json(&json!({ "inputs": inputs, "env": env, "role": role }))
        .map_err(|e| PluginError::Refused(format!("the manifest's inputs: {e}")))?;
    Ok(sha256(&bytes))
}

fn artifacts_of(work: &Work<'_>) -> Vec<Digest> {
    work.manifest.artifacts.iter().map(|artifact| artifact.digest.clone()).collect()
}

fn place(plans: &Path, digest: &Digest) -> PathBuf {
    plans.join(&digest.to_string()["sha256:".len()..])
}

fn copy_private(from: &Path, to: &Path) -> Result<Digest, PluginError> {
    let copy = || format!("cannot keep {}", from.display());
    // A plan file is a file: a link would be somebody else's bytes.
    if !fs::symlink_metadata(from).doing(copy)?.is_file() {
        return Err(PluginError::PluginFailed(format!("{} is no regular file", from.display())));
    }
    let bytes = fs::read(from).doing(copy)?;
    write_private(to, &bytes)?;
    Ok(sha256(&bytes))
}

fn forget_old(plans: &Path) {
    let now = SystemTime::now();
    for entry in fs::read_dir(plans).into_iter().flatten().flatten() {
        let modified = entry.metadata().and_then(|meta| meta.modified());
        let age = modified.ok().and_then(|then| now.duration_since(then).ok());
        if age.is_some_and(|age| age > KEPT) {
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
        // The first test of a process wins; they all want the same one.
        let _first = rustls::crypto::ring::default_provider().install_default();
        let (base_url, token, http) = (String::new(), String::new(), reqwest::Client::new());
        JobContext {
            work_dir: root.join("work"),
            state_dir: root.join("state"),
            artifacts_dir: root.join("artifacts"),
            plugin_dir: root.join("plugins"),
            plans_dir: root.join("plans"),
            env: BTreeMap::new(),
            wrapper: Vec::new(),
            cancel: Cancel::default(),
            registry: Registry { base_url, token, http, patience: Registry::PATIENCE },
            job: JobId(ulid::Ulid::nil()),
            execution: ExecutionId(ulid::Ulid::nil()),
            known_state: crate::state::KnownState::default(),
            manifest_digest: sha256(b"manifest"),
        }
    }

    #[test]
    fn a_plan_is_stale_when_anything_that_was_rendered_for_it_has_changed() {
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
        let planned = Planned { file, beside, tool: "odd 1".into(), changes };
        let digest = keep(&work, planned, StateMark::default()).unwrap().digest;
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
    }

    #[test]
    fn the_same_plan_again_does_not_forget_who_has_begun_it() {
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
            let planned = Planned { file: file.clone(), beside, tool: "odd 1".into(), changes };
            keep(&work, planned, StateMark::default()).unwrap().digest
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
