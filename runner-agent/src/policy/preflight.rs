//! Rules of the policy that would refuse the later jobs of a run, for its preflight.
use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use domain::environment::reserved;
use schemas::{
    manifest::Manifest,
    preflight::{PlannedJob, Rendered},
    runner::CheckStatus,
};

use super::{
    Policy, covers, environment,
    names::{self, listed, listed_action},
};

/// Rule that refuses later jobs of a run, or may refuse them.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Name of the rule.
    pub rule: String,
    /// Positions of the jobs among the planned jobs. Empty if the rule concerns the whole run.
    pub jobs: BTreeSet<usize>,
    /// [`CheckStatus::Deferred`] if only the job itself can be checked.
    pub status: CheckStatus,
    /// Explanation for users, with the line of the policy that allows the jobs.
    pub message: String,
}

/// Names that a rule does not allow, each with the positions of its jobs.
type Missing = BTreeMap<String, BTreeSet<usize>>;

impl Policy {
    /// Returns all rules that would refuse the planned jobs. `of` is the manifest of the preflight,
    /// and `recorded` are the recorded publishers.
    pub fn findings(
        &self,
        of: &Manifest,
        planned: &[PlannedJob],
        recorded: &[String],
        now: DateTime<Utc>,
    ) -> Vec<Finding> {
        let manifests: Vec<Manifest> = planned
            .iter()
            .map(|job| job.manifest(of, job.kinds.first().copied().unwrap_or(of.kind)))
            .collect();
        let is_known = |at: usize| matches!(planned[at].rendered, Rendered::Known { .. });
        let mut found = Vec::new();
        for (at, manifest) in manifests.iter().enumerate() {
            if let Err(refusal) = names::check(manifest) {
                found.push(failed(&refusal.rule, at, refusal.detail));
            }
            for (name, why) in environment::of(manifest).filter_map(|n| Some((n, reserved(n)?))) {
                found.push(failed("env", at, format!("the variable {name:?} is set: {why}")));
            }
            if manifest.role.is_none() && self.roles.is_some() && is_known(at) {
                let why =
                    "the policy requires a role, but the job has none; ask the vendor to set one";
                found.push(failed("roles", at, why.into()));
            }
        }
        let each = |names: &dyn Fn(&Manifest) -> Vec<String>, is_allowed: &dyn Fn(&str) -> bool| {
            let mut missing = Missing::new();
            for (at, manifest) in manifests.iter().enumerate() {
                for name in names(manifest).into_iter().filter(|name| !is_allowed(name)) {
                    missing.entry(name).or_default().insert(at);
                }
            }
            missing
        };
        found.extend(self.missing_kinds(planned));
        type Names = fn(&Manifest) -> Vec<String>;
        let lists: [(&str, &Option<Vec<String>>, Names); 4] = [
            ("plugins", &self.plugins, |one| vec![one.plugin.name.clone()]),
            ("repositories", &self.repositories, |one| {
                one.artifacts.iter().map(|artifact| artifact.repository.clone()).collect()
            }),
            ("roles", &self.roles, |one| one.role.iter().cloned().collect()),
            ("env", &self.env, |one| environment::of(one).map(str::to_owned).collect()),
        ];
        for (rule, allowed, names) in lists {
            let missing = each(&names, &|name| listed(rule, allowed, name).is_ok());
            found.extend(not_allowed(rule, allowed.as_deref().unwrap_or_default(), missing));
        }
        found.extend(self.missing_publishers(&manifests, recorded));
        for (at, manifest) in manifests.iter().enumerate() {
            found.extend(self.action_finding(at, manifest, is_known(at)));
        }
        found.extend(self.window_findings(planned, now));
        if !self.veto_command.is_empty() {
            let message = "the veto command decides about each job".to_owned();
            found.push(deferred("veto_command", BTreeSet::new(), message));
        }
        found
    }

    fn missing_kinds(&self, planned: &[PlannedJob]) -> Option<Finding> {
        let kinds = self.kinds.as_ref()?;
        let mut missing = Missing::new();
        for (at, job) in planned.iter().enumerate() {
            for kind in job.kinds.iter().filter(|kind| !covers(kinds, **kind)) {
                missing.entry(kind.as_str().to_owned()).or_default().insert(at);
            }
        }
        let allowed: Vec<String> = kinds.iter().map(|kind| kind.as_str().to_owned()).collect();
        not_allowed("kinds", &allowed, missing)
    }

    /// Returns the findings about published plugins whose publisher is not trusted, or malformed.
    fn missing_publishers(&self, manifests: &[Manifest], recorded: &[String]) -> Vec<Finding> {
        let (mut found, mut untrusted) = (Vec::new(), Missing::new());
        for (at, manifest) in manifests.iter().enumerate() {
            let Err(refusal) = self.allows_publisher(manifest, recorded) else { continue };
            match &manifest.plugin.artifact {
                Some(artifact) if refusal.rule == "plugin_publishers" => {
                    untrusted.entry(artifact.publisher.to_lowercase()).or_default().insert(at);
                }
                Some(_) | None => found.push(failed(&refusal.rule, at, refusal.detail)),
            }
        }
        if let Some(finding) = not_allowed("plugin_publishers", &self.plugin_publishers, untrusted)
        {
            let message = format!(
                "{}; or restart the runner with --plugin-publisher and the key; confirm the key with the vendor first",
                finding.message
            );
            found.push(Finding { message, ..finding });
        }
        found
    }

    /// Returns a finding about an action that the policy does not allow by its name. Whether it
    /// allows its digest may depend on inputs that are not known yet.
    fn action_finding(&self, at: usize, manifest: &Manifest, is_known: bool) -> Option<Finding> {
        let action = names::action(manifest)?;
        let refusal = listed_action(&self.actions, action, manifest).err()?;
        let allowed = self.actions.as_deref().unwrap_or_default();
        let has_digest = allowed.iter().any(|one| one.starts_with(&format!("{action}@")));
        if !is_known && has_digest {
            let message = format!("the digest of the action {action:?} is not known yet");
            return Some(deferred("actions", BTreeSet::from([at]), message));
        }
        let line = names::line("actions", allowed, [&action.to_owned()]);
        Some(failed("actions", at, format!("{}; {}", refusal.detail, remedy(&line))))
    }

    fn window_findings(&self, planned: &[PlannedJob], now: DateTime<Utc>) -> Vec<Finding> {
        let mut closed: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
        for (at, job) in planned.iter().enumerate() {
            for kind in &job.kinds {
                if let Err(refusal) = self.in_window(*kind, now) {
                    closed.entry(refusal.detail).or_default().insert(at);
                }
            }
        }
        closed.into_iter().map(|(detail, jobs)| deferred("windows", jobs, detail)).collect()
    }
}

fn failed(rule: &str, at: usize, message: String) -> Finding {
    let jobs = BTreeSet::from([at]);
    Finding { rule: rule.into(), jobs, status: CheckStatus::Failed, message }
}

fn deferred(rule: &str, jobs: BTreeSet<usize>, message: String) -> Finding {
    Finding { rule: rule.into(), jobs, status: CheckStatus::Deferred, message }
}

fn remedy(line: &str) -> String {
    format!("add this line to the policy, above its tables: {line}")
}

/// Returns one finding for all names that a list lacks.
fn not_allowed(rule: &str, allowed: &[String], missing: Missing) -> Option<Finding> {
    if missing.is_empty() {
        return None;
    }
    let line = names::line(rule, allowed, missing.keys());
    let named = missing.keys().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    let verb = if missing.len() == 1 { "is" } else { "are" };
    let message = format!("{named} {verb} not among the allowed {rule}; {}", remedy(&line));
    let jobs = missing.into_values().flatten().collect();
    Some(Finding { rule: rule.into(), jobs, status: CheckStatus::Failed, message })
}

#[cfg(test)]
mod tests;
