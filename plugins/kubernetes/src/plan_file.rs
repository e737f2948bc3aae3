//! Content of a plan file: everything that an apply does. The runner stores it with mode 0600, and
//! the approval covers its digest.

use std::path::Path;

use schemas::plugin::StateMark;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    decide::Change,
    failure::{Failure, IoContext, Outcome},
    object::ObjectRef,
};

/// Version of the format.
const VERSION: u32 = 2;

#[derive(Debug, Serialize, Deserialize)]
pub struct PlanFile {
    version: u32,
    /// Field manager: `stead:<install>/<component>`.
    pub manager: String,
    /// Identity of the cluster.
    pub cluster: String,
    /// State of the inventory at the time of the plan.
    pub state: StateMark,
    /// Desired objects in the order of the apply, including unchanged ones.
    pub objects: Vec<PlannedObject>,
    /// Objects of the inventory to delete or forget, in the order of their removal.
    pub removals: Vec<PlannedRemoval>,
}

/// Desired object with its planned change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlannedObject {
    pub reference: ObjectRef,
    pub change: Change,
    /// UID of the live object. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Object as the manifest describes it, with its namespace.
    pub object: Value,
    /// Normalized object after the apply. Absent if only the apply can determine it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Value>,
    /// Paths whose values the server or a webhook chooses at each write, such as a cluster IP.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chosen: Vec<String>,
    /// Paths of the component's fields that the apply changes, sets or removes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
}

/// Object of the inventory to delete or forget.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlannedRemoval {
    pub reference: ObjectRef,
    pub wave: i32,
    /// UID of the object that is deleted. Absent for an object that remains or no longer exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Reason why the object remains in the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stays: Option<String>,
}

impl PlanFile {
    pub fn new(
        manager: &str,
        cluster: String,
        state: StateMark,
        objects: Vec<PlannedObject>,
        removals: Vec<PlannedRemoval>,
    ) -> Self {
        let manager = manager.to_owned();
        PlanFile { version: VERSION, manager, cluster, state, objects, removals }
    }

    pub fn write(&self, path: &Path) -> Outcome<()> {
        write(self, path)
    }

    pub fn read(path: &Path) -> Outcome<Self> {
        read(path, VERSION)
    }
}

/// Version of the format of a plan file.
#[derive(Deserialize)]
struct Format {
    version: u32,
}

/// Writes the content of a plan file.
pub fn write(plan: &impl Serialize, path: &Path) -> Outcome<()> {
    let content = serde_json::to_vec(plan)
        .map_err(std::io::Error::from)
        .context(|| "serialize the plan".into())?;
    std::fs::write(path, content).context(|| format!("write {}", path.display()))
}

/// Reads a plan file in this version of its format.
///
/// # Errors
/// [`Failure::stale`] if the file is corrupt or has another version.
pub fn read<P: DeserializeOwned>(path: &Path, version: u32) -> Outcome<P> {
    let corrupt = |_| Failure::stale("the plan file is corrupt; plan again");
    let content = std::fs::read(path).context(|| format!("read {}", path.display()))?;
    let format: Format = serde_json::from_slice(&content).map_err(corrupt)?;
    if format.version != version {
        return Err(Failure::stale(format!(
            "the plan file has version {}, but this plugin requires version {version}; plan again",
            format.version
        )));
    }
    serde_json::from_slice(&content).map_err(corrupt)
}
