//! Levels of isolation that the policy selects.
use std::{collections::BTreeMap, fmt, path::Component};

use domain::isolation::IsolationLevel;
use schemas::runner::JobKind;
use serde::{
    Deserialize, Deserializer,
    de::{
        Error as _, MapAccess, Visitor,
        value::{MapAccessDeserializer, StrDeserializer},
    },
};

use super::Policy;

/// Network of jobs in a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SandboxNetwork {
    /// Each job has a network of its own.
    #[default]
    Own,
    /// Jobs use the network of the host, with its loopback and metadata services.
    Shared,
}

/// One level for all jobs, or levels by the kind of job.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum IsolationRule {
    All(IsolationLevel),
    ByKind(BTreeMap<JobKind, IsolationLevel>),
}

impl Default for IsolationRule {
    fn default() -> Self {
        IsolationRule::ByKind(BTreeMap::new())
    }
}

impl Policy {
    /// Returns the level that the policy selects for jobs of this kind. If it requires a sandbox for
    /// one kind, it does so for each kind that it does not name: a plan without a sandbox could
    /// change the policy, the state and the approved plan before the apply.
    pub(crate) fn isolation(&self, kind: JobKind) -> Option<IsolationLevel> {
        match &self.isolation {
            IsolationRule::All(level) => Some(*level),
            IsolationRule::ByKind(levels) => {
                let level = |kind| levels.get(&kind).copied();
                // A preflight runs only what the plans of its run would run.
                let of_plan =
                    || (kind == JobKind::Preflight).then(|| level(JobKind::Plan)).flatten();
                let sandbox = IsolationLevel::Sandbox;
                let of_others = || levels.values().any(|one| *one == sandbox).then_some(sandbox);
                level(kind).or_else(of_plan).or_else(of_others)
            }
        }
    }
}

/// Returns why the rules about sandboxes are not valid.
pub(super) fn malformed(policy: &Policy) -> Option<String> {
    let mut paths = policy.sandbox_read.iter().chain(&policy.sandbox_write);
    let is_plain = |part: Component<'_>| match part {
        Component::RootDir | Component::Normal(_) => true,
        Component::Prefix(_) | Component::CurDir | Component::ParentDir => false,
    };
    if let Some(path) = paths.find(|path| !path.is_absolute() || !path.components().all(is_plain)) {
        return Some(format!(
            "{:?} is not an absolute path without `..`",
            path.display().to_string()
        ));
    }
    policy
        .sandbox_loopback
        .contains(&0)
        .then(|| "0 is not a port; list ports from 1 to 65535".into())
}

impl<'de> Deserialize<'de> for IsolationRule {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(RuleVisitor)
    }
}

struct RuleVisitor;

impl<'de> Visitor<'de> for RuleVisitor {
    type Value = IsolationRule;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a level (\"process\" or \"sandbox\"), or a table from kinds of jobs to levels")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<IsolationRule, E> {
        if let Some(why) = unavailable(text) {
            return Err(E::custom(why));
        }
        IsolationLevel::deserialize(StrDeserializer::new(text)).map(IsolationRule::All)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<IsolationRule, A::Error> {
        let levels = BTreeMap::<JobKind, String>::deserialize(MapAccessDeserializer::new(map))?;
        let level = |(kind, text): (JobKind, String)| match unavailable(&text) {
            Some(why) => Err(A::Error::custom(why)),
            None => {
                let level = IsolationLevel::deserialize(StrDeserializer::new(&text));
                level.map(|level| (kind, level))
            }
        };
        let levels: Result<_, A::Error> = levels.into_iter().map(level).collect();
        levels.map(IsolationRule::ByKind)
    }
}

/// Returns the error for a level that this version does not have.
fn unavailable(level: &str) -> Option<&'static str> {
    (level == "container").then_some(
        "the isolation level \"container\" is not available in this version; use \"sandbox\" or \"process\"",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> Policy {
        toml::from_str(&format!("version = 1\n{text}")).unwrap()
    }

    #[test]
    fn the_level_container_is_refused_by_name() {
        for text in ["isolation = \"container\"", "isolation = { apply = \"container\" }"] {
            let parsed = toml::from_str::<Policy>(&format!("version = 1\n{text}"));
            let error = parsed.unwrap_err().to_string();
            assert!(error.contains("\"container\" is not available"), "{error}");
        }
        let parsed = toml::from_str::<Policy>("version = 1\nisolation = \"jail\"");
        assert!(parsed.unwrap_err().to_string().contains("unknown variant"));
    }

    #[test]
    fn a_level_applies_to_all_kinds_or_to_one() {
        use IsolationLevel::{Process, Sandbox};
        assert_eq!(policy("").isolation(JobKind::Apply), None);
        assert_eq!(policy("isolation = \"process\"").isolation(JobKind::Apply), Some(Process));
        let by_kind = policy("isolation = { plan = \"sandbox\", action = \"process\" }");
        assert_eq!(by_kind.isolation(JobKind::Plan), Some(Sandbox));
        assert_eq!(by_kind.isolation(JobKind::Preflight), Some(Sandbox));
        assert_eq!(by_kind.isolation(JobKind::Action), Some(Process));
        assert_eq!(by_kind.isolation(JobKind::Apply), Some(Sandbox));
        let lower = policy("isolation = { action = \"process\" }");
        assert_eq!(lower.isolation(JobKind::Action), Some(Process));
        assert_eq!(lower.isolation(JobKind::Apply), None);
    }
}
