//! Everything that a plan digest covers, as the record of a stored plan.

use std::{collections::BTreeMap, io};

use domain::digest::Digest;
use oci_layout::sha256;
use proof::plan::PartsV2;
use schemas::{manifest::Manifest, runner::PlanV2};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    plugins::{
        contract::PluginError,
        plugin::{Changes, IoContext, Operation, Work},
    },
    state::StateMark,
};

/// Summary that an approver reads, with the inputs of the plan. It contains names and never values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Summary {
    pub version: u32,
    pub component: String,
    pub operation: Operation,
    #[serde(flatten)]
    pub changes: Changes,
    pub reads: PlanInputs,
}

/// Inputs of a plan. The plan is stale if any of them differs at the apply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlanInputs {
    /// SHA-256 of the rendered part of the manifest, `{env, inputs, role}`, as RFC 8785 JSON.
    pub(super) inputs: Digest,
    pub(super) artifacts: Vec<Digest>,
    /// Plugin that created the plan. Plans of earlier runners do not have it, and are stale.
    #[serde(default)]
    pub(super) plugin: Option<PlanPlugin>,
    pub(super) state: StateMark,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) beside: BTreeMap<String, Digest>,
}

/// Plugin of a plan. The digest is that of the published artifact or of the installed executable. A
/// plugin that is built into the runner has none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PlanPlugin {
    pub name: String,
    pub version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

/// Everything that the digest of a plan covers, except the content of the files.
#[derive(Serialize, Deserialize)]
pub(super) struct Record {
    pub file: Digest,
    pub summary: Value,
    pub manifest: Digest,
    pub tool: String,
    /// Further parts of a digest of version 2. Plans of earlier runners have version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v2: Option<PlanV2>,
}

impl PlanPlugin {
    pub fn of(work: &Work<'_>) -> Self {
        let plugin = &work.manifest.plugin;
        let published = plugin.artifact.as_ref().map(|artifact| &artifact.digest);
        let digest = published.or(plugin.digest.as_ref()).cloned();
        PlanPlugin { name: plugin.name.clone(), version: plugin.version.clone(), digest }
    }
}

impl PlanInputs {
    /// Returns an error if the inputs, the artifacts or the plugin of the job differ.
    pub(super) fn check(&self, work: &Work<'_>) -> Result<(), PluginError> {
        let stale = |why: &str| Err(PluginError::PlanStale(why.to_owned()));
        if self.inputs != inputs_of(work)? {
            return stale("the inputs, the environment or the role have changed");
        }
        if self.artifacts != artifacts_of(work) {
            return stale("the artifact has changed");
        }
        if self.plugin != Some(PlanPlugin::of(work)) {
            return stale("the plugin has changed");
        }
        Ok(())
    }

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

impl Record {
    /// Returns the digest of the plan, and the digest of its summary.
    pub fn digests(&self) -> Result<(Digest, Digest), PluginError> {
        let summary = proof::canonical::json(&self.summary).map_err(|e| {
            PluginError::PluginFailed(format!("cannot serialize the summary of the plan: {e}"))
        })?;
        let summary = sha256(&summary);
        let (file, manifest) = (self.file.bytes(), self.manifest.bytes());
        let hash = match &self.v2 {
            None => proof::plan::digest_of(&file, &summary.bytes(), &manifest, &self.tool),
            Some(PlanV2 { details, plugin, tool }) => {
                let [details, plugin, tool] =
                    [details, plugin, tool].map(|part| part.as_ref().map(|digest| digest.bytes()));
                let parts = PartsV2 { details, plugin, tool };
                proof::plan::digest_v2(&file, &summary.bytes(), &manifest, &self.tool, &parts)
            }
        };
        let digest = proof::digest_text(&hash).parse().map_err(io::Error::other);
        Ok((digest.doing(|| "cannot format a digest".into())?, summary))
    }
}

pub(super) fn inputs_of(work: &Work<'_>) -> Result<Digest, PluginError> {
    match &work.job.unfilled_inputs {
        Some(digest) => Ok(digest.clone()),
        None => digest_of_inputs(work.manifest),
    }
}

/// Returns the digest of everything in a manifest that a plan depends on. The server reads it, so
/// the manifest must not contain sensitive values: a short one could be found by trying.
pub(crate) fn digest_of_inputs(manifest: &Manifest) -> Result<Digest, PluginError> {
    let Manifest { inputs, env, role, secrets, .. } = manifest;
    let mut covered = json!({ "inputs": inputs, "env": env, "role": role });
    if !secrets.is_empty() {
        covered["secrets"] = json!(secrets);
    }
    let bytes = proof::canonical::json(&covered).map_err(|e| {
        PluginError::Refused(format!("cannot serialize the manifest's inputs: {e}"))
    })?;
    Ok(sha256(&bytes))
}

pub(super) fn artifacts_of(work: &Work<'_>) -> Vec<Digest> {
    work.manifest.artifacts.iter().map(|artifact| artifact.digest.clone()).collect()
}
