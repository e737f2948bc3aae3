//! Rules: the planned change of one object of a release. No I/O.

use serde_json::Value;
use stead_plugin_kubernetes::{
    decide::{
        Change, Decision, DryRun, KNOWN_AFTER_APPLY, Removal, conflict_text, finalizers, protection,
    },
    fields,
    managed::{self, ForeignOwner},
    object::{ObjectRef, metadata},
};

use crate::{
    objects::{RELEASE_NAME, RELEASE_NAMESPACE, is_random},
    settings::ReleaseRef,
};

/// Mark of a field that is excluded from drift.
const RANDOM: &str = "changes at every render";

/// Object of a release with its live state and dry run: the input of [`decide`].
pub struct Candidate<'c> {
    pub object: &'c ObjectRef,
    pub live: Option<&'c Value>,
    pub dry_run: &'c DryRun,
    pub release: &'c ReleaseRef,
    pub random: &'c [String],
    pub take_ownership: bool,
}

/// Decides the change of an object. A difference in random fields only is not a change.
///
/// # Errors
/// Returns the reason why the object blocks the plan.
pub fn decide(candidate: &Candidate<'_>) -> Result<Decision, String> {
    let Candidate { object, live, dry_run, release, random, take_ownership } = *candidate;
    let decision = |change, attributes| Ok(Decision { change, attributes });
    let Some(live) = live else {
        return match dry_run {
            DryRun::Applied(_) => decision(Change::Create, vec![]),
            DryRun::Unknown => decision(Change::Create, vec![KNOWN_AFTER_APPLY.into()]),
            DryRun::Conflict(conflicts) => Err(conflict_text(object, conflicts)),
            DryRun::Immutable(_) => Err(format!("{object} changed during the plan; plan again")),
        };
    };
    if metadata(live, "deletionTimestamp").is_some() {
        let finalizers = finalizers(live);
        return Err(format!(
            "{object} is being deleted{finalizers}; wait for its deletion, then plan again"
        ));
    }
    if let Some(owner) = other_owner(live, release) {
        return Err(format!("{object} belongs to {owner}; rename one of the two objects"));
    }
    let is_own = belongs_to(live, release);
    if !is_own && !take_ownership {
        return Err(format!(
            "{object} exists, and this release does not own it; set take_ownership = true to adopt \
             it, or rename the object"
        ));
    }
    match dry_run {
        DryRun::Conflict(conflicts) => Err(conflict_text(object, conflicts)),
        DryRun::Immutable(fields) => Err(format!(
            "cannot change immutable fields of {object} ({}): Helm does not replace objects; \
             restore these fields, or delete the object manually",
            fields.join(", ")
        )),
        DryRun::Unknown => {
            let change = if is_own { Change::Update } else { Change::Adopt };
            decision(change, vec![KNOWN_AFTER_APPLY.into()])
        }
        DryRun::Applied(after) => {
            let found = fields::differences(&fields::normalize(live), &fields::normalize(after));
            let found: Vec<String> = found.into_iter().collect();
            let is_stable = |path: &String| !is_random(path, random);
            let change = match (is_own, found.iter().any(is_stable)) {
                (false, _) => Change::Adopt,
                (true, true) => Change::Update,
                (true, false) => Change::None,
            };
            let marked = found.into_iter().map(|path| match is_random(&path, random) {
                true => format!("{path} ({RANDOM})"),
                false => path,
            });
            decision(change, marked.collect())
        }
    }
}

/// Returns whether an object has the labels and annotations of a release.
pub fn belongs_to(object: &Value, release: &ReleaseRef) -> bool {
    let annotations = &object["metadata"]["annotations"];
    annotations[RELEASE_NAME] == release.name.as_str()
        && annotations[RELEASE_NAMESPACE] == release.namespace.as_str()
}

/// Returns the owner of an object that is not this release.
pub fn other_owner(object: &Value, release: &ReleaseRef) -> Option<ForeignOwner> {
    // A component of Stead has a field manager of this form, and Helm has another one.
    let owner = managed::foreign_owner(object, "helm")?;
    match owner {
        ForeignOwner::HelmRelease(_) if belongs_to(object, release) => None,
        ForeignOwner::HelmRelease(_)
        | ForeignOwner::ApplySet(_)
        | ForeignOwner::SteadComponent(_) => Some(owner),
    }
}

/// Removal of an object that the new release does not have.
#[derive(Debug, PartialEq)]
pub enum Pruned {
    Removal(Removal),
    /// The object stays, although Helm would delete it: the apply marks it as kept.
    Keep(String),
}

/// Decides the effect of an upgrade on an object that left the chart.
///
/// # Errors
/// Returns the reason why the object blocks the plan.
pub fn prune(
    object: &ObjectRef,
    live: Option<&Value>,
    release: &ReleaseRef,
) -> Result<Pruned, String> {
    let Some(live) = live else { return Ok(Pruned::Removal(Removal::Gone)) };
    if !belongs_to(live, release) {
        return match other_owner(live, release) {
            Some(owner) if is_kept(live) => {
                Ok(Pruned::Removal(Removal::Forget(format!("it now belongs to {owner}"))))
            }
            // Helm deletes the objects of its last manifest by name.
            Some(owner) => Err(format!(
                "{object} left the chart and now belongs to {owner}, and Helm would delete it; add \
                 helm.sh/resource-policy: keep to the object"
            )),
            None => Ok(Pruned::Keep("another object now has its name".into())),
        };
    }
    Ok(match protection(object, live) {
        Some(reason) if is_kept(live) => {
            Pruned::Removal(Removal::Forget(format!("{reason} is never pruned")))
        }
        Some(reason) => Pruned::Keep(format!("{reason} is never pruned")),
        None => Pruned::Removal(Removal::Delete),
    })
}

/// Part of an object in the manifest that `helm uninstall` executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    /// Helm does not know the object.
    No,
    /// Helm deletes the object by its name.
    Deleted,
    Kept,
}

/// Decides what the uninstall of a release does with an object.
///
/// # Errors
/// Returns the reason why the object blocks the plan.
pub fn uninstall(
    object: &ObjectRef,
    live: Option<&Value>,
    release: &ReleaseRef,
    listed: Listed,
) -> Result<Removal, String> {
    let Some(live) = live else { return Ok(Removal::Gone) };
    // An object that an upgrade marked as kept is not in the manifest any more.
    if listed == Listed::Kept || (listed == Listed::No && is_kept(live)) {
        return Ok(Removal::Forget("it has helm.sh/resource-policy: keep".into()));
    }
    let other = match other_owner(live, release) {
        Some(owner) => format!("belongs to {owner} now"),
        None if belongs_to(live, release) => return Ok(Removal::Delete),
        None => format!("has no marks of {release} any more"),
    };
    match listed {
        Listed::Deleted => Err(format!(
            "{object} {other}, and Helm would delete it; delete or rename it, or uninstall the \
             release by hand"
        )),
        Listed::No | Listed::Kept => Ok(Removal::Forget(format!("it {other}"))),
    }
}

/// Returns whether an object has the annotation that Helm respects.
pub fn is_kept(object: &Value) -> bool {
    object["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
}

#[cfg(test)]
mod tests;
