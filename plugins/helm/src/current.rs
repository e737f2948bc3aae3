//! Actual release of a component: its revisions, and the next operation of Helm.

use serde::{Deserialize, Serialize};
use stead_plugin_kubernetes::{
    cluster::Cluster,
    failure::{Failure, Outcome},
    inventory::Inventory,
};

use crate::{
    former_hooks::HookEntry,
    release::{self, Record, Release, Status},
    render::Verb,
    settings::ReleaseRef,
    version::Version,
};

/// State of the plugin besides the objects, in the inventory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Details {
    /// Release of the component, from the first apply on.
    #[serde(default)]
    pub release: Option<ReleaseRef>,
    /// Revision that the last apply created.
    #[serde(default)]
    pub revision: u64,
    /// Name and version of the chart of the last complete apply.
    #[serde(default)]
    pub chart: String,
    /// Objects of hooks that the operations created.
    #[serde(default)]
    pub hooks: Vec<HookEntry>,
}

impl Details {
    pub fn of(inventory: &Inventory) -> Self {
        Details::deserialize(inventory.details()).unwrap_or_default()
    }
}

/// Actual release.
#[derive(Debug, Default)]
pub struct Current {
    /// Newest revision.
    pub last: Option<Record>,
    /// Newest complete revision, with its objects.
    pub release: Option<Release>,
    /// Another revision whose objects can exist: that from which Helm upgrades, or which an interrupted
    /// upgrade did not replace completely.
    pub other: Option<Release>,
    /// Revisions of interrupted operations, which the next apply removes.
    pub dropped: Vec<Record>,
}

impl Current {
    pub async fn load(cluster: &Cluster, wanted: &ReleaseRef, details: &Details) -> Outcome<Self> {
        let records = release::records(cluster, wanted).await?;
        let dropped = dropped(&records, wanted, details)?;
        let mut remaining = records.iter().filter(|record| !dropped.contains(record));
        let newest = remaining.next_back();
        // After a failed upgrade, Helm compares with the last deployed revision.
        let deployed = records.iter().rev().find(|record| record.status == Status::Deployed);
        let other = deployed.filter(|deployed| Some(*deployed) != newest);
        let (release, other) =
            (read(cluster, wanted, newest).await?, read(cluster, wanted, other).await?);
        Ok(Current { last: records.last().copied(), release, other, dropped })
    }

    /// Reads the release that `helm uninstall` removes: the newest revision, even an interrupted one.
    pub async fn load_newest(
        cluster: &Cluster,
        wanted: &ReleaseRef,
        details: &Details,
    ) -> Outcome<Self> {
        let records = release::records(cluster, wanted).await?;
        let dropped = dropped(&records, wanted, details)?;
        let last = records.last();
        let complete = records.iter().rev().find(|record| !dropped.contains(record));
        let other = complete.filter(|complete| Some(*complete) != last);
        let (release, other) =
            (read(cluster, wanted, last).await?, read(cluster, wanted, other).await?);
        Ok(Current { last: last.copied(), release, other, dropped: vec![] })
    }

    /// Operation that brings the release to the desired state. A release that was never complete is
    /// installed again, so that its install hooks run.
    pub fn verb(&self) -> Verb {
        match self.release {
            Some(_) => Verb::Upgrade,
            None => Verb::Install,
        }
    }

    /// Returns whether the next operation uses server-side apply: from Helm 4 on, unless Helm 3
    /// created the release.
    pub fn is_server_side(&self, version: Version) -> bool {
        version.has_server_side_apply() && self.release.as_ref().is_none_or(Release::is_server_side)
    }

    /// Revision that the next operation creates.
    pub fn next_revision(&self) -> u64 {
        self.release.as_ref().map_or(0, |release| release.version) + 1
    }

    /// Returns the reason why the release needs an operation although its objects have the desired
    /// state.
    pub fn defect(&self) -> Option<String> {
        let last = self.last?;
        match last.status {
            Status::Deployed => None,
            Status::Superseded
            | Status::Failed
            | Status::PendingInstall
            | Status::PendingUpgrade
            | Status::PendingRollback
            | Status::Uninstalling
            | Status::Uninstalled
            | Status::Unknown => {
                Some(format!("revision {} is {}", last.version, last.status.name()))
            }
        }
    }
}

async fn read(
    cluster: &Cluster,
    wanted: &ReleaseRef,
    record: Option<&Record>,
) -> Outcome<Option<Release>> {
    match record {
        Some(record) => Ok(Some(release::stored(cluster, wanted, record.version).await?)),
        None => Ok(None),
    }
}

/// Returns the revisions that stand in the way of the next operation.
///
/// # Errors
/// Another program runs an operation on the release.
fn dropped(records: &[Record], wanted: &ReleaseRef, details: &Details) -> Outcome<Vec<Record>> {
    let Some(last) = records.last() else { return Ok(vec![]) };
    let is_own = details.release.as_ref() == Some(wanted) && details.revision == last.version;
    if last.status.is_pending() && !is_own {
        return Err(Failure::refused(format!(
            "{wanted} has the status {}: another program runs Helm, or its run was interrupted; \
             wait for its end, or repair the release with helm rollback",
            last.status.name()
        )));
    }
    match records.iter().any(|record| record.status.was_deployed()) {
        // A failed upgrade stays in the history, and the next upgrade follows it.
        true => Ok(records.iter().filter(|record| record.status.is_pending()).copied().collect()),
        false => Ok(records.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::StorageDriver;

    fn records(statuses: &[Status]) -> Vec<Record> {
        (1..).zip(statuses).map(|(version, status)| Record { version, status: *status }).collect()
    }

    fn versions(statuses: &[Status], revision: u64) -> Result<Vec<u64>, String> {
        let driver = StorageDriver::Secret;
        let wanted = ReleaseRef { namespace: "shop".into(), name: "web".into(), driver };
        let release = Some(wanted.clone());
        let details = Details { release, revision, ..Details::default() };
        let dropped = dropped(&records(statuses), &wanted, &details);
        let dropped = dropped.map_err(|failure| failure.message)?;
        Ok(dropped.into_iter().map(|record| record.version).collect())
    }

    #[test]
    fn interrupted_revisions_are_dropped_and_complete_ones_stay() {
        use Status::{Deployed, Failed, PendingInstall, PendingUpgrade, Superseded, Uninstalling};
        assert_eq!(versions(&[], 0), Ok(vec![]));
        assert_eq!(versions(&[Superseded, Deployed], 2), Ok(vec![]));
        assert_eq!(versions(&[Deployed, Failed], 2), Ok(vec![]));
        assert_eq!(versions(&[Deployed, PendingUpgrade], 2), Ok(vec![2]));
        assert_eq!(versions(&[PendingInstall], 1), Ok(vec![1]));
        assert_eq!(versions(&[Failed, Failed], 2), Ok(vec![1, 2]));
        assert_eq!(versions(&[Uninstalling], 1), Ok(vec![1]));
        // The operation of another program.
        let error = versions(&[Deployed, PendingUpgrade], 1).unwrap_err();
        assert!(error.contains("pending-upgrade"), "{error}");
    }
}
