//! Content of a plan file: everything that an apply does, with the static chart that Helm executes.
//! The runner stores it with mode 0600, and the approval covers its digest.

use std::path::Path;

use schemas::plugin::{Operation, StateMark};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stead_plugin_kubernetes::{
    decide::Change,
    failure::Outcome,
    object::ObjectRef,
    plan_file::{self, PlannedRemoval},
};

use crate::{
    chart::StaticChart, hooks::PlannedHook, release::Record, render::Verb, settings::ReleaseRef,
};

/// Version of the format.
const VERSION: u32 = 3;

#[derive(Debug, Serialize, Deserialize)]
pub struct PlanFile {
    pub version: u32,
    /// Component: `stead:<install>/<component>`.
    pub manager: String,
    /// Identity of the cluster.
    pub cluster: String,
    /// Version of Helm that made the plan.
    pub helm: String,
    /// State that the plan was made from.
    pub state: StateMark,
    pub operation: Operation,
    pub release: ReleaseRef,
    /// Helm uses server-side apply.
    pub is_server_side: bool,
    /// Newest revision at the time of the plan.
    pub last: Option<Record>,
    /// Change of the release. `None` without one, and for a destroy without a release.
    pub change: Option<ReleaseChange>,
    /// Desired objects of the manifest, including unchanged ones.
    pub objects: Vec<ReleaseObject>,
    /// Objects that the component deletes or releases.
    pub removals: Vec<PlannedRemoval>,
    /// Objects that the plan keeps, but Helm would delete.
    pub kept: Vec<ObjectRef>,
    /// Objects of `crds/`, which Helm never deletes.
    pub definitions: Vec<ObjectRef>,
    /// Hooks that the operation runs.
    pub hooks: Vec<PlannedHook>,
}

/// Desired object of a release with its planned change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReleaseObject {
    pub reference: ObjectRef,
    pub change: Change,
    /// Object as Helm applies it.
    pub object: Value,
    /// Normalized object after the apply. Absent if only the apply can determine it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Value>,
    /// Paths in `expected` that the server sets at the creation, such as a cluster IP.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chosen: Vec<String>,
    /// Paths that change at every render.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub random: Vec<String>,
}

/// Operation of Helm.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReleaseChange {
    pub verb: Verb,
    /// Revision after the operation.
    pub revision: u64,
    /// Revisions of interrupted operations, which the apply removes first.
    pub dropped: Vec<u64>,
    /// The plan adopts an object or the release.
    pub adopts: bool,
    /// Helm creates the namespace of the release.
    pub creates_namespace: bool,
    /// Name and version of the chart.
    pub chart: String,
    pub content: StaticChart,
}

impl PlanFile {
    pub fn new(
        (manager, cluster, helm, state): (String, String, String, StateMark),
        operation: Operation,
        release: ReleaseRef,
        last: Option<Record>,
    ) -> Self {
        PlanFile {
            version: VERSION,
            manager,
            cluster,
            helm,
            state,
            operation,
            release,
            is_server_side: true,
            last,
            change: None,
            objects: vec![],
            removals: vec![],
            kept: vec![],
            definitions: vec![],
            hooks: vec![],
        }
    }

    pub fn write(&self, path: &Path) -> Outcome<()> {
        plan_file::write(self, path)
    }

    pub fn read(path: &Path) -> Outcome<Self> {
        plan_file::read(path, VERSION)
    }
}
