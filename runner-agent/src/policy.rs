//! Policy of the customer: limits the jobs of this runner, whatever the server signs.
//!
//! ```toml
//! version = 1
//! kinds = ["plan", "apply"]                # absent: every kind; `plan` includes `preflight`
//! plugins = ["terraform_module"]           # names; `*` at the end matches any suffix
//! plugin_publishers = ["9c41…"]             # keys of trusted publishers, in addition to the recorded keys
//! deny_release_publisher = true            # no plugin of Stead's releases
//! actions = ["backup@sha256:4f…", "report-*"]   # with a digest: exactly what `stead-runner approvals` showed, with all inputs
//! repositories = ["acme/*"]                # where artifacts may come from
//! roles = ["arn:aws:iam::123456789012:role/stead-*"]
//! env = ["LOG_LEVEL", "TF_VAR_*"]          # absent: every variable that the vendor may set
//! pass_env = ["AWS_REGION"]                # of the runner's environment, handed to the child, redacted
//! isolation = "sandbox"                    # absent: "process"; or by kind: { action = "process", apply = "sandbox" }
//! sandbox_network = "shared"               # instead of "own"
//! sandbox_read = ["/srv/mirror"]           # paths that a sandbox shows in addition
//! sandbox_write = ["/srv/cache"]           # paths that a job in a sandbox may write in addition
//! sandbox_loopback = [8080]                # ports on the host's loopback interface that a sandbox reaches
//! kubeconfig_allows = ["exec"]             # what a kubeconfig in an output may have: exec, auth-provider, paths; absent: none
//! require_approval = ["apply"]             # waits for `stead-runner approve` on this host
//! approval_timeout = "30m"                 # absent: 30m; and never longer than half of the job's duration
//! max_grace = "10m"                        # absent: 10m; longest time from the stop signal to SIGKILL
//! max_duration = "24h"                     # absent: 24h; longest duration of a job
//! max_memory = "4GiB"                      # absent: no limit; resident memory of all processes of a job together
//! max_processes = 1000                     # absent: no limit
//! veto_command = ["/etc/stead/veto"]       # reads the manifest; any exit code other than 0 refuses the job
//!
//! [[windows]]                              # outside of all windows for its kind, a job is refused
//! kinds = ["apply"]
//! days = ["sat", "sun"]                    # absent: every day
//! from = "22:00"                           # UTC
//! to = "04:00"
//! ```
//!
//! The runner reads the file again for each job. If it cannot read the file, it refuses the job.
mod choice;
mod environment;
mod isolation;
mod limits;
mod names;
mod preflight;
pub mod publishers;

use std::{
    fs,
    num::NonZeroU32,
    path::{Path, PathBuf},
    time::Duration,
};

use chrono::{DateTime, Datelike as _, NaiveTime, Utc, Weekday};
use domain::environment::reserved;
use schemas::{
    manifest::Manifest,
    runner::{JobKind, RefusedBy},
};
use serde::Deserialize;

pub(crate) use self::isolation::SandboxNetwork;
pub use self::{
    choice::{Choice, begin, preview, resume},
    limits::Limits,
};
use self::{isolation::IsolationRule, names::listed};
pub use self::{names::action_with_digest, preflight::Finding};
use crate::{data::Data, plugins::AllowedInKubeconfig};

/// Contents of the policy file.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    version: u32,
    kinds: Option<Vec<JobKind>>,
    plugins: Option<Vec<String>>,
    /// Public keys of publishers, 64 hexadecimal digits each.
    #[serde(default)]
    plugin_publishers: Vec<String>,
    /// Denies the key of Stead's releases, which a released runner trusts by default.
    #[serde(default)]
    deny_release_publisher: bool,
    actions: Option<Vec<String>>,
    repositories: Option<Vec<String>>,
    roles: Option<Vec<String>>,
    /// Variables that a manifest may set.
    env: Option<Vec<String>>,
    /// Names of variables of the runner's environment that the child receives.
    #[serde(default)]
    pub pass_env: Vec<String>,
    /// Features that the kubeconfig of a component may have.
    #[serde(default)]
    pub kubeconfig_allows: AllowedInKubeconfig,
    /// Level of isolation of jobs.
    #[serde(default)]
    isolation: IsolationRule,
    /// Network of jobs in a sandbox.
    #[serde(default)]
    pub(crate) sandbox_network: SandboxNetwork,
    /// Paths of the host that jobs in a sandbox may read in addition.
    #[serde(default)]
    pub sandbox_read: Vec<PathBuf>,
    /// Paths of the host that jobs in a sandbox may write in addition.
    #[serde(default)]
    pub sandbox_write: Vec<PathBuf>,
    /// Ports on the loopback interface of the host that jobs in a sandbox may connect to.
    #[serde(default)]
    pub sandbox_loopback: Vec<u16>,
    /// Command that reads the manifest on standard input; a non-zero exit code refuses the job.
    #[serde(default)]
    pub veto_command: Vec<String>,
    /// Kinds of jobs that wait for an approval on this host.
    #[serde(default)]
    require_approval: Vec<JobKind>,
    #[serde(default)]
    windows: Vec<Window>,
    #[serde(default, deserialize_with = "limits::optional")]
    max_grace: Option<Duration>,
    #[serde(default, deserialize_with = "limits::optional")]
    max_duration: Option<Duration>,
    /// Most memory of all processes of a job together.
    #[serde(default, deserialize_with = "limits::bytes")]
    pub max_memory: Option<u64>,
    /// Most processes of a job at the same time.
    pub max_processes: Option<NonZeroU32>,
    #[serde(default, deserialize_with = "limits::optional")]
    approval_timeout: Option<Duration>,
}

/// Time window in which jobs of some kinds may begin.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Window {
    kinds: Option<Vec<JobKind>>,
    days: Option<Vec<Weekday>>,
    #[serde(deserialize_with = "clock")]
    from: NaiveTime,
    #[serde(deserialize_with = "clock")]
    to: NaiveTime,
}

/// Refusal of a job by this runner.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{detail} (rule {rule})")]
pub struct Refusal {
    pub by: RefusedBy,
    pub rule: String,
    /// Explanation for users.
    pub detail: String,
}

impl Refusal {
    /// Returns a refusal by the customer's policy.
    pub fn policy(rule: &str, detail: impl Into<String>) -> Self {
        Refusal { by: RefusedBy::CustomerPolicy, rule: rule.into(), detail: detail.into() }
    }
}

/// Reason why the policy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("cannot read the policy file {path}")]
    Read { path: String, source: std::io::Error },
    #[error(
        "cannot read the policy: the data directory records none; run `stead-runner policy set FILE` or `stead-runner policy none`"
    )]
    NotRecorded,
    #[error("cannot parse the policy file {path}: {why}")]
    Parse { path: String, why: String },
}

impl Policy {
    /// Returns a policy that allows everything that the server signs, within the runner's own
    /// limits.
    pub fn without_rules() -> Self {
        Policy { version: 1, ..Policy::default() }
    }

    /// Reads the policy that the data directory records.
    pub fn current(data: &Data) -> Result<Self, PolicyError> {
        let unreadable =
            |source| PolicyError::Read { path: data.root().display().to_string(), source };
        let choice = Choice::recorded(data).map_err(unreadable)?;
        choice.ok_or(PolicyError::NotRecorded)?.policy()
    }

    pub fn read(path: &Path) -> Result<Self, PolicyError> {
        let name = || path.display().to_string();
        let text = fs::read_to_string(path)
            .map_err(|source| PolicyError::Read { path: name(), source })?;
        let parsed: Result<Policy, _> = toml::from_str(&text);
        let mut policy =
            parsed.map_err(|error| PolicyError::Parse { path: name(), why: error.to_string() })?;
        if policy.version != 1 {
            let why = format!("version {} is not supported; set `version = 1`", policy.version);
            return Err(PolicyError::Parse { path: name(), why });
        }
        if let Some(window) = policy.windows.iter().find(|window| window.from == window.to) {
            let at = window.from.format("%H:%M");
            let why =
                format!("a window from {at} to {at} is never open; set another `from` or `to`");
            return Err(PolicyError::Parse { path: name(), why });
        }
        for key in &mut policy.plugin_publishers {
            *key =
                publishers::parse(key).map_err(|why| PolicyError::Parse { path: name(), why })?;
        }
        if let Some(why) = isolation::malformed(&policy) {
            return Err(PolicyError::Parse { path: name(), why });
        }
        let lists =
            [&policy.plugins, &policy.actions, &policy.repositories, &policy.roles, &policy.env];
        if let Some(pattern) = names::malformed(lists.into_iter().flatten().flatten()) {
            let why = format!("{pattern:?} is not a pattern: `*` is allowed only at the end");
            return Err(PolicyError::Parse { path: name(), why });
        }
        Ok(policy)
    }

    /// Returns the limits of every job, regardless of its manifest.
    pub fn limits(&self) -> Limits {
        let Limits { grace, duration, approval } = Limits::default();
        Limits {
            grace: self.max_grace.unwrap_or(grace),
            duration: self.max_duration.unwrap_or(duration),
            approval: self.approval_timeout.unwrap_or(approval),
        }
    }

    /// Checks whether a job may run now.
    pub fn allows(&self, manifest: &Manifest, now: DateTime<Utc>) -> Result<(), Refusal> {
        let kind = manifest.kind;
        if self.kinds.as_ref().is_some_and(|kinds| !covers(kinds, kind)) {
            let detail = format!("the policy does not allow jobs of kind {}", kind.as_str());
            return Err(Refusal::policy("kinds", detail));
        }
        names::check(manifest)?;
        // A preflight uses plugins only for later jobs that the policy allows.
        let is_preflight = kind == JobKind::Preflight;
        if !is_preflight {
            listed("plugins", &self.plugins, &manifest.plugin.name)?;
        }
        if let Some(action) = names::action(manifest) {
            names::listed_action(&self.actions, action, manifest)?;
        }
        for artifact in &manifest.artifacts {
            listed("repositories", &self.repositories, &artifact.repository)?;
        }
        match &manifest.role {
            Some(role) => listed("roles", &self.roles, role)?,
            None if self.roles.is_some() && !is_preflight => {
                return Err(Refusal::policy(
                    "roles",
                    "the policy requires a role, but the job has none",
                ));
            }
            None => {}
        }
        for name in environment::of(manifest) {
            if let Some(why) = reserved(name) {
                let detail = format!("the job sets the variable {name:?}: {why}");
                return Err(Refusal::policy("env", detail));
            }
            listed("env", &self.env, name)?;
        }
        self.in_window(kind, now)
    }

    /// Returns true if jobs of this kind wait for an approval on this host.
    pub fn requires_approval(&self, kind: JobKind) -> bool {
        covers(&self.require_approval, kind)
    }

    fn in_window(&self, kind: JobKind, now: DateTime<Utc>) -> Result<(), Refusal> {
        let mut of_kind = self.windows.iter().filter(|window| window.is_for(kind)).peekable();
        if of_kind.peek().is_none() || of_kind.any(|window| window.is_open(now)) {
            return Ok(());
        }
        let detail =
            format!("the time is outside the maintenance windows for {} jobs", kind.as_str());
        Err(Refusal::policy("windows", detail))
    }
}

/// Returns true if a list of kinds covers this kind. A preflight only runs what the plans of its run
/// would run, so every rule for plans covers it.
fn covers(kinds: &[JobKind], kind: JobKind) -> bool {
    kinds.contains(&kind) || (kind == JobKind::Preflight && kinds.contains(&JobKind::Plan))
}

impl Window {
    fn is_for(&self, kind: JobKind) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| covers(kinds, kind))
    }

    fn is_open(&self, now: DateTime<Utc>) -> bool {
        let (time, today) = (now.time(), now.weekday());
        let on = |day| self.days.as_ref().is_none_or(|days| days.contains(&day));
        if self.from <= self.to {
            on(today) && self.from <= time && time < self.to
        } else {
            // The hours after midnight belong to the day on which the window opened.
            (on(today) && self.from <= time) || (on(today.pred()) && time < self.to)
        }
    }
}

fn clock<'de, D: serde::Deserializer<'de>>(from: D) -> Result<NaiveTime, D::Error> {
    let text = String::deserialize(from)?;
    NaiveTime::parse_from_str(&text, "%H:%M")
        .map_err(|_| serde::de::Error::custom(format!("{text:?} is not a time such as 22:00")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn manifest(kind: &str) -> Manifest {
        serde_json::from_value(json!({
            "version": 1, "job": "job_01ARZ3NDEKTSV4RRFFQ69G5FAV", "kind": kind, "class": "pure",
            "plugin": {"name": "terraform_module", "version": "1"},
            "artifacts": [{"repository": "acme/web", "digest": format!("sha256:{:064}", 0), "size": 1}],
            "inputs": {"action": "report-daily"}, "role": "arn:aws:iam::1:role/stead-web",
            "limits": {"output_bytes": 1}, "timeouts": {"deadline_ms": 1, "grace_ms": 1},
        }))
        .unwrap()
    }

    fn rule(policy: &str, kind: &str, at: &str) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("policy.toml");
        fs::write(&path, format!("version = 1\n{policy}")).unwrap();
        let policy = Policy::read(&path).unwrap();
        let now = format!("2026-11-{at}:00Z").parse().unwrap();
        policy.allows(&manifest(kind), now).err().map(|refusal| refusal.rule)
    }

    #[test]
    fn absent_lists_allow_everything() {
        let noon = "21T12:00";
        assert_eq!(rule("", "apply", noon), None);
        let cases = [
            (r#"kinds = ["plan"]"#, "kinds"),
            (r#"plugins = ["helm_chart"]"#, "plugins"),
            (r#"repositories = ["other/*"]"#, "repositories"),
            (r#"roles = ["arn:aws:iam::2:*"]"#, "roles"),
        ];
        for (policy, expected) in cases {
            assert_eq!(rule(policy, "apply", noon).as_deref(), Some(expected), "{policy}");
        }
        assert_eq!(rule(r#"actions = ["backup"]"#, "action", noon).as_deref(), Some("actions"));
        assert_eq!(rule(r#"actions = ["report-*"]"#, "action", noon), None);
        assert_eq!(rule(r#"repositories = ["acme/*"]"#, "apply", noon), None);
    }

    #[test]
    fn a_window_over_midnight_belongs_to_the_day_on_which_it_opened() {
        // 2026-11-21 is a Saturday.
        let window = "[[windows]]\nkinds=[\"apply\"]\ndays=[\"sat\"]\nfrom=\"22:00\"\nto=\"04:00\"";
        assert_eq!(rule(window, "apply", "21T23:00"), None);
        assert_eq!(rule(window, "apply", "22T03:59"), None);
        assert_eq!(rule(window, "apply", "21T03:00").as_deref(), Some("windows"));
        assert_eq!(rule(window, "apply", "22T04:00").as_deref(), Some("windows"));
        assert_eq!(rule(window, "plan", "21T12:00"), None);
    }

    /// A shell of the runner starts each program with the variables of the job, outside of the sandbox.
    #[test]
    fn no_manifest_sets_a_variable_that_changes_a_shell() {
        for name in ["BASH_ENV", "BASH_XTRACEFD", "BASHOPTS", "ENV", "IFS", "PS4", "SHELLOPTS"] {
            let mut manifest = manifest("apply");
            manifest.env.insert(name.into(), "x".into());
            let refusal =
                Policy::without_rules().allows(&manifest, crate::host::now()).unwrap_err();
            assert_eq!(refusal.rule, "env", "{name}");
        }
    }

    #[test]
    fn invalid_rules_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("policy.toml");
        for text in [
            "version = 1\nkind = [\"plan\"]",
            "version = 2",
            "",
            "version = 1\nkinds = [\"x\"]",
            "version = 1\nactions = [\"back*up\"]",
            "version = 1\nplugin_publishers = [\"key\"]",
            "version = 1\nkubeconfig_allows = [\"file\"]",
            "version = 1\n[[windows]]\nfrom = \"00:00\"\nto = \"00:00\"",
            "version = 1\nisolation = \"jail\"",
            "version = 1\nisolation = {deploy = \"sandbox\"}",
            "version = 1\nsandbox_read = [\"relative\"]",
            "version = 1\nsandbox_write = [\"/srv/../etc\"]",
            "version = 1\nsandbox_loopback = [0]",
            "version = 1\nmax_memory = \"4GB\"",
            "version = 1\nmax_processes = 0",
            "version = 1\nmax_grace = \"10\"",
            "version = 1\nmax_grace = \"1.5h\"",
            "version = 1\nmax_duration = \"-1m\"",
            "version = 1\nmax_duration = \"é\"",
        ] {
            fs::write(&path, text).unwrap();
            assert!(Policy::read(&path).is_err(), "{text}");
        }
        assert!(Policy::read(&dir.path().join("none")).is_err());
    }
}
