//! Inputs of a preflight job: the later jobs of its run, and what each of them will need.
use std::collections::BTreeMap;

use domain::ids::RunId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    manifest::{ArtifactRef, Manifest, PluginRef},
    runner::JobKind,
};

/// Name of the plugin in the manifest of a preflight. It is built into the runner.
pub const PLUGIN: &str = "preflight";
/// Maximum size of the rendered inputs of all jobs in one preflight, in bytes as JSON. The inputs
/// of further jobs are left out, so their checks are deferred.
pub const INPUTS_BYTES: usize = 4 << 20;

/// Inputs of a preflight job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PreflightInputs {
    /// Run whose requirements the job checks.
    pub run: RunId,
    /// Steps of the run that apply a component or execute an action, in their order.
    pub jobs: Vec<PlannedJob>,
}

impl PreflightInputs {
    /// Parses the inputs of a preflight. `None` for a job of another kind, or if they are
    /// malformed.
    pub fn of(manifest: &Manifest) -> Option<Self> {
        match manifest.kind {
            JobKind::Preflight => serde_json::from_value(manifest.inputs.clone()).ok(),
            JobKind::Resolve
            | JobKind::Build
            | JobKind::Plan
            | JobKind::Apply
            | JobKind::Sync
            | JobKind::Action => None,
        }
    }
}

/// Jobs of one step, as far as their manifests are known before the run makes a change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedJob {
    /// Name of the component or action, or `sandbox`.
    pub name: String,
    /// Kinds of the jobs of the step, in their order.
    pub kinds: Vec<JobKind>,
    /// Plugin of these jobs.
    pub plugin: PluginRef,
    /// Artifact of the component. Empty for an action, and before the build has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactRef>,
    /// Rendered settings of the config.
    #[serde(flatten)]
    pub rendered: Rendered,
}

impl PlannedJob {
    /// Returns the manifest of the job of this kind, as far as it is known. `of` is the manifest of
    /// the preflight.
    pub fn manifest(&self, of: &Manifest, kind: JobKind) -> Manifest {
        let (inputs, env, role) = match &self.rendered {
            Rendered::Known { inputs, env, role } => (inputs.clone(), env.clone(), role.clone()),
            Rendered::Deferred(_) => (json!({ kind.subject(): self.name }), BTreeMap::new(), None),
        };
        Manifest {
            version: of.version,
            job: of.job,
            kind,
            class: kind.class(),
            plugin: self.plugin.clone(),
            artifacts: self.artifacts.clone(),
            inputs,
            env,
            role,
            limits: of.limits.clone(),
            timeouts: of.timeouts.clone(),
            secrets: vec![],
            plan: None,
            state: None,
        }
    }
}

/// Rendered parts of the manifests of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rendered {
    /// The parts are known.
    Known {
        /// Rendered inputs of the plugin.
        inputs: Value,
        /// Environment variables of the child process.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, String>,
        /// Cloud role of the jobs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        role: Option<String>,
    },
    /// The parts depend on a result of the run, or cannot be rendered now. The text is the reason.
    Deferred(String),
}
