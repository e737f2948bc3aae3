//! Rules that decide the planned change of one object from its live state and a dry run. No I/O.

use serde_json::Value;

use crate::{
    fields,
    managed::{self, Conflict},
    object::{ObjectRef, metadata},
    rejection::is_failed_job,
};

/// Attribute of an object that the server cannot evaluate before the apply.
pub const KNOWN_AFTER_APPLY: &str = "known after apply";
/// Attribute of a change in ownership without a change in content.
const OWNERSHIP: &str = "metadata.managedFields";

/// Attribute of a Job that failed. It never runs again, so only a new one can become ready.
const FAILED: &str = "it failed";

/// Result of a dry run.
#[derive(Debug, PartialEq)]
pub enum DryRun {
    /// The object after the apply.
    Applied(Value),
    Conflict(Vec<Conflict>),
    /// The object is valid, but it changes these immutable fields of the live object.
    Immutable(Vec<String>),
    /// The server cannot evaluate the object yet: a webhook does not respond, or does not support
    /// dry runs.
    Unknown,
}

impl DryRun {
    /// Returns the object after the apply, if the server could determine it.
    pub fn after(self) -> Option<Value> {
        match self {
            DryRun::Applied(after) => Some(after),
            DryRun::Conflict(_) | DryRun::Immutable(_) | DryRun::Unknown => None,
        }
    }
}

/// Planned change of a desired object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    None,
    Create,
    Update,
    Adopt,
    Replace,
}

/// Change with the names of the fields that differ.
#[derive(Debug, PartialEq)]
pub struct Decision {
    pub change: Change,
    pub attributes: Vec<String>,
}

/// Desired object with its live state and dry run: the input of [`decide`].
pub struct Candidate<'c> {
    pub object: &'c ObjectRef,
    /// Object as the manifest describes it.
    pub desired: &'c Value,
    pub live: Option<&'c Value>,
    pub dry_run: &'c DryRun,
    /// Paths whose values the server or a webhook sets at each write.
    pub chosen: &'c [String],
    pub manager: &'c str,
    /// True if the inventory lists the live object. The managed fields of an object without fields
    /// of the component, such as a Namespace with only a name, do not show its owner.
    pub is_listed: bool,
    pub take_ownership: bool,
}

/// Decides the change of an object.
///
/// # Errors
/// Returns the reason why the object blocks the plan.
pub fn decide(candidate: &Candidate<'_>) -> Result<Decision, String> {
    let Candidate { object, desired, live, dry_run, chosen, manager, is_listed, take_ownership } =
        *candidate;
    let Some(live) = live else {
        return match dry_run {
            DryRun::Applied(_) => Ok(decision(Change::Create, vec![])),
            DryRun::Unknown => Ok(decision(Change::Create, vec![KNOWN_AFTER_APPLY.into()])),
            DryRun::Conflict(conflicts) => Err(conflict_text(object, conflicts)),
            DryRun::Immutable(_) => Err(format!("{object} changed during the plan; plan again")),
        };
    };
    if metadata(live, "deletionTimestamp").is_some() {
        return Err(format!(
            "{object} is being deleted{}; wait for its deletion, then plan again",
            finalizers(live)
        ));
    }
    if let Some(owner) = managed::foreign_owner(live, manager) {
        return Err(format!("{object} belongs to {owner}; rename one of the two objects"));
    }
    let owned = managed::applied_fields(live, manager);
    let is_own = is_listed || owned.is_some();
    if !is_own && !take_ownership {
        return Err(format!(
            "{object} exists, and this component does not own it; set take_ownership = true to \
             adopt it, or rename the object"
        ));
    }
    match dry_run {
        DryRun::Conflict(conflicts) => Err(conflict_text(object, conflicts)),
        DryRun::Immutable(fields) => {
            let fields = fields.clone();
            if !is_own {
                return Err(format!(
                    "cannot adopt {object}: immutable fields differ ({}); change the manifest",
                    fields.join(", ")
                ));
            }
            let reason = protection(object, live).or_else(|| protection(object, desired));
            match reason {
                Some(reason) => Err(format!(
                    "cannot change immutable fields of {object} ({}): {reason} is never replaced; \
                     restore these fields, or delete the object manually",
                    fields.join(", ")
                )),
                None => Ok(decision(Change::Replace, fields)),
            }
        }
        DryRun::Unknown => {
            let change = if is_own { Change::Update } else { Change::Adopt };
            Ok(decision(change, vec![KNOWN_AFTER_APPLY.into()]))
        }
        DryRun::Applied(after) => {
            let found = fields::differences(&fields::normalize(live), &fields::normalize(after));
            let mut attributes: Vec<String> = found.into_iter().collect();
            attributes.retain(|path| !fields::is_below(path, chosen));
            if !is_own {
                let release = managed::release(live, after, manager);
                let taken = release.managers.into_iter();
                attributes.extend(taken.map(|other| format!("takes over fields of {other}")));
                return Ok(decision(Change::Adopt, attributes));
            }
            if is_failed_job(object, live)
                && protection(object, live).or_else(|| protection(object, desired)).is_none()
            {
                attributes.push(FAILED.into());
                return Ok(decision(Change::Replace, attributes));
            }
            if !managed::changes(live, after, manager, chosen).is_empty() {
                return Ok(decision(Change::Update, attributes));
            }
            match managed::applied_fields(after, manager) == owned {
                true => Ok(decision(Change::None, vec![])),
                false => Ok(decision(Change::Update, vec![OWNERSHIP.into()])),
            }
        }
    }
}

/// Returns the reason why a planned change must not happen to the live object immediately before
/// its effect. `uid` is the UID of the object that the plan read.
pub fn reason_to_stop(
    change: Change,
    uid: Option<&str>,
    live: Option<&Value>,
    manager: &str,
    object: &ObjectRef,
) -> Option<String> {
    let live = match (uid, live) {
        (None, None) => return None,
        (None, Some(_)) => return Some(format!("{object} was created after the plan")),
        (Some(_), None) => return Some(format!("{object} was deleted after the plan")),
        (Some(_), Some(live)) => live,
    };
    if metadata(live, "uid") != uid {
        return Some(format!("{object} was deleted and created again after the plan"));
    }
    if change == Change::None {
        return None;
    }
    if let Some(owner) = managed::foreign_owner(live, manager) {
        return Some(format!("{object} now belongs to {owner}"));
    }
    if metadata(live, "deletionTimestamp").is_some() {
        return Some(format!("{object} is being deleted{}", finalizers(live)));
    }
    match change {
        Change::Replace => protection(object, live)
            .map(|reason| format!("{object} is now {reason}, which is never replaced")),
        Change::None | Change::Create | Change::Update | Change::Adopt => None,
    }
}

fn decision(change: Change, attributes: Vec<String>) -> Decision {
    Decision { change, attributes }
}

/// Returns a message with each conflicting field and its manager.
pub fn conflict_text(object: &ObjectRef, conflicts: &[Conflict]) -> String {
    let named = conflicts.iter().map(|one| format!("{} ({})", one.field, one.manager));
    format!(
        "{object} has fields of other managers: {}; remove these fields from the manifest, or from \
         the other manager",
        named.collect::<Vec<_>>().join(", ")
    )
}

/// Returns the finalizers of an object, as part of a message.
pub fn finalizers(object: &Value) -> String {
    let names = object["metadata"]["finalizers"].as_array().into_iter().flatten();
    let names: Vec<&str> =
        names.filter_map(Value::as_str).filter(|name| *name != "foregroundDeletion").collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(" (finalizers: {})", names.join(", ")),
    }
}

/// Kinds that contain data or other objects. They are never pruned or replaced.
const PROTECTED: [(&str, &str); 5] = [
    ("", "PersistentVolumeClaim"),
    ("", "PersistentVolume"),
    ("", "Namespace"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("apps", "StatefulSet"),
];

/// Returns the reason why an object is neither replaced nor pruned.
pub fn protection(object: &ObjectRef, live: &Value) -> Option<String> {
    if is_kept(live) {
        return Some("an object with helm.sh/resource-policy: keep".into());
    }
    let protected = PROTECTED.iter().find(|(group, kind)| object.is_kind(group, kind));
    protected.map(|(_, kind)| format!("a {kind}"))
}

fn is_kept(live: &Value) -> bool {
    live["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
}

/// Reason to remove an object of the inventory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The manifest no longer has the object.
    Prune,
    /// The component is destroyed.
    Destroy,
}

/// Planned removal of an object of the inventory.
#[derive(Debug, Clone, PartialEq)]
pub enum Removal {
    /// The object does not exist.
    Gone,
    Delete,
    /// The object remains in the cluster, for this reason.
    Forget(String),
}

/// Object of the inventory that is not desired, with its live state: the input of [`remove`].
pub struct Obsolete<'c> {
    pub object: &'c ObjectRef,
    /// UID that the inventory recorded.
    pub uid: Option<&'c str>,
    pub live: Option<&'c Value>,
    pub manager: &'c str,
    pub purpose: Purpose,
    /// Reason to keep the object: its deletion would also delete other objects.
    pub content: Option<&'c str>,
}

/// Decides the removal of an object. An object that another owner has taken over remains.
pub fn remove(obsolete: &Obsolete<'_>) -> Removal {
    let Obsolete { object, uid, live, manager, purpose, content } = *obsolete;
    let Some(live) = live else { return Removal::Gone };
    let is_own = managed::applied_fields(live, manager).is_some();
    if !is_own && (uid.is_none() || metadata(live, "uid") != uid) {
        return Removal::Forget("another object now has its name".into());
    }
    if let Some(owner) = managed::foreign_owner(live, manager) {
        return Removal::Forget(format!("it now belongs to {owner}"));
    }
    let protected = match purpose {
        Purpose::Prune => protection(object, live),
        Purpose::Destroy if is_kept(live) => protection(object, live),
        Purpose::Destroy => None,
    };
    if let Some(reason) = protected {
        let verb = if purpose == Purpose::Prune { "pruned" } else { "deleted" };
        return Removal::Forget(format!("{reason} is never {verb}"));
    }
    match content {
        Some(reason) => Removal::Forget(reason.to_owned()),
        None => Removal::Delete,
    }
}

#[cfg(test)]
mod tests;
