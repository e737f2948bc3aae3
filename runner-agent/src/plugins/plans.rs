//! Stores plan files by the digest that an approval covers.
//!
//! ```text
//! <plans_dir>/<64 digits>/record.json    everything that the digest covers, except the file
//!                         plan           the plan file, encrypted with the keys of its component
//!                         encrypted      job and digest of the encrypted plan file
//!                         beside/<name>  further files that the apply needs
//!                         details.json   values that an approver sees, with their salt
//!                         begun          execution that began to apply the plan; never applied again
//! ```
//!
//! `<plans_dir>/salt-key` is the random key from which the salts of details are computed.
//!
//! A plan file can contain secrets: it is encrypted, files have mode 0600, directories 0700. The
//! runner uses a stored plan only after it has recomputed the approved digest.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use domain::digest::Digest;
use oci_layout::sha256_file;
use schemas::{plugin::PlanDetails, runner::PlanV2};
use serde_json::Value;

use self::record::{PlanPlugin, Record, Summary, artifacts_of, inputs_of};
use super::{
    contract::{PlanRecord, PluginError, SaltedDetails},
    plugin::{IoContext, Operation, Planned, Work},
    work::{private_dir, write_private},
};
use crate::{data, host, state::StateMark};

mod encrypted;
mod record;
mod salt;

pub(crate) use record::{PlanInputs, digest_of_inputs};

/// Age at which a plan is removed.
const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// File with the id of the execution that began to apply the plan.
const BEGUN: &str = "begun";
/// File with the details and their salt.
const DETAILS: &str = "details.json";

/// Approved plan that matches its digest and the manifest of the apply.
pub(crate) struct ApprovedPlan {
    /// Path of the plan file.
    pub file: PathBuf,
    /// Paths of the further files, by name.
    pub extra_files: BTreeMap<String, PathBuf>,
    pub tool: String,
    /// Digest of the executable of the tool. Absent for plans of version 1.
    pub tool_digest: Option<Digest>,
    pub operation: Operation,
    pub state: StateMark,
    dir: PathBuf,
}

/// Stores a plan under its digest. Does not keep a plan that is only a check.
///
/// The details are redacted and bounded already: the digest covers what an approver sees.
pub(crate) fn store(
    work: &Work<'_>,
    planned: Planned,
    details: Option<PlanDetails>,
    state: StateMark,
) -> Result<PlanRecord, PluginError> {
    let plans = &work.job.plans_dir;
    private_dir(plans)?;
    remove_old(plans);
    let context = || "cannot store a plan".to_owned();
    let staging = tempfile::Builder::new().prefix(".arriving-").tempdir_in(plans).doing(context)?;
    private_dir(staging.path())?;
    private_dir(&staging.path().join("beside"))?;
    let file = encrypted::store(work, &planned.file, staging.path())?;
    let mut beside = BTreeMap::new();
    for (name, path) in planned.extra_files {
        let digest = copy_private(&path, &staging.path().join("beside").join(&name))?;
        beside.insert(name, digest);
    }
    let changes = planned.changes;
    let (noop, add, change, destroy) = (changes.noop, changes.add, changes.change, changes.destroy);
    let (inputs, artifacts) = (inputs_of(work)?, artifacts_of(work));
    let plugin = PlanPlugin::of(work);
    let plugin_digest = plugin.digest.clone();
    let reads = PlanInputs { inputs, artifacts, plugin: Some(plugin), state, beside };
    let component = work.name.to_owned();
    let summary = Summary { version: 1, component, operation: work.operation, changes, reads };
    let summary = serde_json::to_value(summary).map_err(io::Error::from).doing(context)?;
    let details = details.map(|details| salted(plans, &file, &details)).transpose()?;
    let details_digest = details.as_ref().map(SaltedDetails::digest);
    let v2 = PlanV2 { details: details_digest, plugin: plugin_digest, tool: planned.tool_digest };
    let manifest = work.job.manifest_digest.clone();
    let record = Record { file, summary, manifest, tool: planned.tool, v2: Some(v2.clone()) };
    let (digest, summary_digest) = record.digests()?;
    let bytes = serde_json::to_vec(&record).map_err(io::Error::from).doing(context)?;
    write_private(&staging.path().join("record.json"), &bytes)?;
    if let Some(details) = &details {
        let bytes = serde_json::to_vec(details).map_err(io::Error::from).doing(context)?;
        write_private(&staging.path().join(DETAILS), &bytes)?;
    }
    if !work.is_check {
        keep(work, staging, &record, &digest)?;
    }
    let Record { file, summary, tool, .. } = record;
    Ok(PlanRecord {
        digest,
        file,
        summary,
        summary_digest,
        noop,
        add,
        change,
        destroy,
        tool,
        v2,
        details,
    })
}

/// Moves a plan into its directory, unless it is stored already.
fn keep(
    work: &Work<'_>,
    staging: tempfile::TempDir,
    record: &Record,
    digest: &Digest,
) -> Result<(), PluginError> {
    let context = || "cannot store a plan".to_owned();
    let plans = &work.job.plans_dir;
    let dir = plan_dir(plans, digest);
    if is_stored(work, &dir, record, digest) {
        // The same plan is stored already and stays: a running apply may use its files, and a
        // `begun` file prevents a second apply.
        let _stays_as_old_as_it_was =
            fs::File::open(&dir).and_then(|dir| dir.set_modified(host::system_time()));
        return Ok(());
    }
    if dir.exists() {
        fs::remove_dir_all(&dir).doing(context)?;
    }
    // A user approves the plan next, so its files must remain after a power failure.
    let sync = |dir: &Path| fs::File::open(dir).and_then(|dir| dir.sync_all()).doing(context);
    let beside = staging.path().join("beside");
    if beside.is_dir() {
        sync(&beside)?;
    }
    sync(staging.path())?;
    fs::rename(staging.keep(), &dir).doing(context)?;
    sync(plans)
}

/// Returns the details with a salt that only this runner can compute.
fn salted(
    plans: &Path,
    file: &Digest,
    details: &PlanDetails,
) -> Result<SaltedDetails, PluginError> {
    let salt = proof::plan::salt(&file.bytes(), &*salt::key(plans)?);
    let content = proof::canonical::json(details)
        .map_err(io::Error::other)
        .and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
    let content = content.doing(|| "cannot serialize the details of the plan".into())?;
    Ok(SaltedDetails { salt: salt.into(), content })
}

/// Returns true if this plan is stored and is either complete or begun.
fn is_stored(work: &Work<'_>, dir: &Path, record: &Record, digest: &Digest) -> bool {
    let stored = fs::read(dir.join("record.json")).ok();
    let stored = stored.and_then(|bytes| serde_json::from_slice::<Record>(&bytes).ok());
    let matches =
        stored.is_some_and(|stored| stored.digests().is_ok_and(|(stored, _)| stored == *digest));
    let is_complete = || {
        !encrypted::is_of_earlier_version(work, dir)
            && encrypted::digest(work, dir).is_ok_and(|file| file == record.file)
    };
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
    if encrypted::is_of_earlier_version(work, &dir) {
        // It names the state in a file, which is empty or does not exist any more.
        return Err(stale("an earlier version of the runner made it"));
    }
    let (file, plan) = encrypted::read(work, &dir).map_err(|_| changed())?;
    record.file = plan;
    if record.digests()?.0 != *approved {
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
    reads.check(work)?;
    let mut beside = BTreeMap::new();
    for (name, digest) in &reads.beside {
        let path = dir.join("beside").join(name);
        if sha256_file(&path).map_err(|_| changed())? != *digest {
            return Err(changed());
        }
        beside.insert(name.clone(), path);
    }
    let (tool, operation) = (record.tool, summary.operation);
    let (state, tool_digest) = (reads.state.clone(), record.v2.and_then(|v2| v2.tool));
    let extra_files = beside;
    Ok((ApprovedPlan { file, extra_files, tool, tool_digest, operation, state, dir }, reads))
}

/// Returns the summary of a plan and its details, if they are stored here and match the digest.
pub(crate) fn summary(plans: &Path, approved: &Digest) -> Option<(Value, Option<PlanDetails>)> {
    let dir = plan_dir(plans, approved);
    let mut record: Record =
        serde_json::from_slice(&fs::read(dir.join("record.json")).ok()?).ok()?;
    // The approved digest covers the recorded digest of the file, which is verified at the apply.
    record.file = encrypted::recorded_digest(&dir).ok()?;
    if record.digests().ok()?.0 != *approved {
        return None;
    }
    let covered = record.v2.and_then(|v2| v2.details);
    let details = covered.and_then(|covered| {
        let stored = fs::read(dir.join(DETAILS)).ok()?;
        let stored: SaltedDetails = serde_json::from_slice(&stored).ok()?;
        (stored.digest() == covered).then(|| serde_json::from_str(&stored.content).ok())?
    });
    Some((record.summary, details))
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

/// Removes all plans of a component. They were made from a state in another place.
pub(crate) fn remove_of(plans: &Path, component: &str) -> io::Result<()> {
    let entries = match fs::read_dir(plans) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let dir = entry?.path();
        let record = fs::read(dir.join("record.json")).ok();
        let record = record.and_then(|bytes| serde_json::from_slice::<Record>(&bytes).ok());
        if record.is_some_and(|record| record.summary["component"] == component) {
            fs::remove_dir_all(&dir)?;
        }
    }
    Ok(())
}

fn plan_dir(plans: &Path, digest: &Digest) -> PathBuf {
    plans.join(&digest.to_string()["sha256:".len()..])
}

/// Opens a file of a plugin. A link could lead to a file that the plugin did not write.
fn open_regular(from: &Path) -> Result<fs::File, PluginError> {
    data::open_without_links(from).map_err(|error| {
        let is_other = error.kind() == io::ErrorKind::InvalidData
            || error.raw_os_error() == Some(nix::libc::ELOOP);
        let path = from.display();
        match is_other {
            true => {
                PluginError::PluginFailed(format!("cannot store {path}: it is not a regular file"))
            }
            false => {
                let context = format!("cannot copy {path}");
                PluginError::Io { context, source: error }
            }
        }
    })
}

fn copy_private(from: &Path, to: &Path) -> Result<Digest, PluginError> {
    let copy = || format!("cannot copy {}", from.display());
    let mut source = open_regular(from)?;
    write_private(to, b"")?;
    let mut target = fs::OpenOptions::new().append(true).open(to).doing(copy)?;
    io::copy(&mut source, &mut target).doing(copy)?;
    target.sync_data().doing(copy)?;
    sha256_file(to).doing(copy)
}

fn remove_old(plans: &Path) {
    let now = host::system_time();
    for entry in fs::read_dir(plans).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let modified = entry.metadata().and_then(|meta| meta.modified());
        let age = modified.ok().and_then(|then| now.duration_since(then).ok());
        if age.is_some_and(|age| age > MAX_AGE) {
            let _next_time = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(in crate::plugins) use tests::context;
