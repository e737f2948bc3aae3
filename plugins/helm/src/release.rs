//! Releases: as Helm renders them, and as it stores them in the cluster.

use std::{collections::BTreeSet, io::Read};

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::read::GzDecoder;
use kube::{
    api::ListParams,
    core::{Request, request},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stead_plugin_kubernetes::{
    cluster::{Cluster, RequestError},
    failure::{Failure, Outcome},
    kinds::Kind,
    object::metadata,
};

use crate::settings::{ReleaseRef, StorageDriver};

/// Largest decoded release in bytes.
const LIMIT: u64 = 64 << 20;

/// Release with the parts that a plan needs.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Release {
    /// Revision.
    #[serde(default)]
    pub version: u64,
    #[serde(default)]
    pub manifest: String,
    #[serde(default)]
    pub hooks: Option<Vec<Hook>>,
    #[serde(default)]
    pub info: Info,
    /// Values of the user.
    #[serde(default)]
    pub config: Value,
    #[serde(default)]
    pub chart: Option<Chart>,
    /// `ssa` or `csa`, from Helm 4 on.
    #[serde(default)]
    pub apply_method: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct Info {
    #[serde(default)]
    pub notes: String,
}

/// Hook of a release.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Hook {
    /// Path of its template.
    #[serde(default)]
    pub path: String,
    pub manifest: String,
    #[serde(default)]
    pub events: Vec<String>,
    #[serde(default)]
    pub weight: i64,
    #[serde(default)]
    pub delete_policies: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct Chart {
    #[serde(default)]
    pub metadata: Map<String, Value>,
    /// Defaults of the chart.
    #[serde(default)]
    pub values: Value,
}

impl Release {
    pub fn hooks(&self) -> &[Hook] {
        self.hooks.as_deref().unwrap_or_default()
    }

    /// Returns whether Helm applied it with server-side apply.
    pub fn is_server_side(&self) -> bool {
        self.apply_method.as_deref() == Some("ssa")
    }
}

/// Status of a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    Deployed,
    Superseded,
    Failed,
    PendingInstall,
    PendingUpgrade,
    PendingRollback,
    Uninstalling,
    Uninstalled,
    #[serde(other)]
    Unknown,
}

impl Status {
    /// Returns whether an operation of Helm runs, or was interrupted.
    pub fn is_pending(self) -> bool {
        match self {
            Status::PendingInstall | Status::PendingUpgrade | Status::PendingRollback => true,
            Status::Deployed
            | Status::Superseded
            | Status::Failed
            | Status::Uninstalling
            | Status::Uninstalled
            | Status::Unknown => false,
        }
    }

    /// Returns whether the revision was deployed once.
    pub fn was_deployed(self) -> bool {
        match self {
            Status::Deployed | Status::Superseded => true,
            Status::Failed
            | Status::PendingInstall
            | Status::PendingUpgrade
            | Status::PendingRollback
            | Status::Uninstalling
            | Status::Uninstalled
            | Status::Unknown => false,
        }
    }

    /// Name as Helm shows it.
    pub fn name(self) -> &'static str {
        match self {
            Status::Deployed => "deployed",
            Status::Superseded => "superseded",
            Status::Failed => "failed",
            Status::PendingInstall => "pending-install",
            Status::PendingUpgrade => "pending-upgrade",
            Status::PendingRollback => "pending-rollback",
            Status::Uninstalling => "uninstalling",
            Status::Uninstalled => "uninstalled",
            Status::Unknown => "unknown",
        }
    }
}

/// Stored revision, from its labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub version: u64,
    pub status: Status,
}

/// Returns the stored revisions of a release, in ascending order.
pub async fn records(cluster: &Cluster, release: &ReleaseRef) -> Outcome<Vec<Record>> {
    let list = list(cluster, release).await?;
    let labels = list["items"].as_array().into_iter().flatten();
    let labels = labels.map(|item| &item["metadata"]["labels"]);
    let mut records: Vec<Record> = labels
        .filter_map(|labels| {
            let version = labels["version"].as_str()?.parse().ok()?;
            let status = Status::deserialize(&labels["status"]).ok()?;
            Some(Record { version, status })
        })
        .collect();
    records.sort_by_key(|record| record.version);
    Ok(records)
}

/// Returns the UIDs of the objects in which Helm stores a release. An uninstall deletes them.
pub async fn uids(cluster: &Cluster, release: &ReleaseRef) -> Outcome<BTreeSet<String>> {
    let list = list(cluster, release).await?;
    let items = list["items"].as_array().into_iter().flatten();
    Ok(items.filter_map(|item| metadata(item, "uid").map(str::to_owned)).collect())
}

async fn list(cluster: &Cluster, release: &ReleaseRef) -> Outcome<Value> {
    let parameters = ListParams::default().labels(&format!("owner=helm,name={}", release.name));
    let list = Request::new(kind(release).path(Some(&release.namespace)));
    let list = cluster.send(list.list_metadata(&parameters)).await;
    list.map_err(|error| error.during(&format!("read the revisions of {release}")))
}

/// Reads a stored revision.
pub async fn stored(cluster: &Cluster, release: &ReleaseRef, version: u64) -> Outcome<Release> {
    let name = record_name(release, version);
    let object = cluster.get(&kind(release), Some(&release.namespace), &name).await?;
    let corrupt = || {
        let namespace = &release.namespace;
        Failure::failed(format!(
            "cannot read revision {version} of {release}: {namespace}/{name} is corrupt; restore \
             it from a backup of the cluster, or delete it to continue from the revision before it"
        ))
    };
    let object = object.ok_or_else(corrupt)?;
    let text = object["data"]["release"].as_str().ok_or_else(corrupt)?;
    let mut bytes = STANDARD.decode(text).map_err(|_| corrupt())?;
    if release.driver == StorageDriver::Secret {
        bytes = STANDARD.decode(bytes).map_err(|_| corrupt())?;
    }
    let mut json = vec![];
    let read = GzDecoder::new(bytes.as_slice()).take(LIMIT).read_to_end(&mut json);
    read.map_err(|_| corrupt())?;
    serde_json::from_slice(&json).map_err(|_| corrupt())
}

/// Deletes a stored revision.
pub async fn delete(cluster: &Cluster, release: &ReleaseRef, version: u64) -> Outcome<()> {
    let path = kind(release).path(Some(&release.namespace));
    let parameters = kube::api::DeleteParams::default();
    let deletion: Result<_, request::Error> =
        Request::new(path).delete(&record_name(release, version), &parameters);
    match cluster.send(deletion).await {
        Ok(_) => Ok(()),
        Err(error) if error.has_code(404) => Ok(()),
        Err(error) => {
            Err(RequestError::during(error, &format!("delete revision {version} of {release}")))
        }
    }
}

fn kind(release: &ReleaseRef) -> Kind {
    match release.driver {
        StorageDriver::Secret => Kind::secret(),
        StorageDriver::Configmap => Kind::config_map(),
    }
}

fn record_name(release: &ReleaseRef, version: u64) -> String {
    format!("sh.helm.release.v1.{}.v{version}", release.name)
}
