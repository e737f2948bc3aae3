//! Actions (scripts with triggers) and runbooks (ordered lists of actions and deploys).
use std::collections::BTreeMap;

use domain::digest::Digest;
use serde::Serialize;
use serde_json::Value;

use super::Source;
use crate::text::{Origin, Text};

/// A vendor's script with triggers.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Action {
    /// Location; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub name: String,
    pub file: String,
    /// Timeout of one run in milliseconds.
    pub timeout_ms: u64,
    pub triggers: Vec<Trigger>,
    pub steps: Vec<ActionStep>,
    pub dependencies: Vec<String>,
    /// Requested role. `None` means the maintenance role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Text>,
    /// False if the action gets no kubeconfig.
    #[serde(skip)]
    pub uses_cluster: bool,
    /// Context of the action's cluster. `None` means the cluster of the sandbox.
    #[serde(skip)]
    pub kubernetes_context: Option<String>,
    /// Number of automatic retries after a failure.
    pub max_auto_retries: u32,
    pub settings: Value,
    #[serde(skip)]
    pub texts: Vec<Text>,
    pub digest: Option<Digest>,
}

/// A script of an action. In a published config, at most one of `command` and `inline_contents` is
/// set. None is set if the content of a URL was not fetched.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ActionStep {
    /// Location; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inline_contents: Option<Text>,
    pub env_vars: BTreeMap<String, Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// Event or schedule that starts an action, or permission to start it manually.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trigger {
    pub kind: TriggerKind,
    /// Component of a component trigger. `None` means every component.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron_schedule: Option<String>,
    /// Order among actions with the same trigger, lowest first.
    pub index: i64,
    /// Location of the value of `type`.
    #[serde(skip)]
    pub origin: Origin,
}

macro_rules! trigger_kinds {
    ($($name:ident = $word:literal,)*) => {
        /// Kinds of triggers that the format defines.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        pub enum TriggerKind { $(#[serde(rename = $word)] $name,)* }
        impl TriggerKind {
            pub const ALL: &'static [TriggerKind] = &[$(TriggerKind::$name,)*];

            /// True if the trigger is about one component or all components, so the app needs a
            /// component.
            pub fn is_about_components(self) -> bool {
                self.name().contains("-component")
            }
            /// True if the trigger fires for one component at a time.
            pub fn is_about_one_component(self) -> bool {
                self.name().ends_with("-component")
            }
            pub fn is_about_the_sandbox(self) -> bool {
                self.name().ends_with("-sandbox")
            }
            /// True if this release starts actions on this trigger.
            pub fn fires(self) -> bool {
                matches!(
                    self,
                    TriggerKind::Manual
                        | TriggerKind::PostProvision
                        | TriggerKind::PostReprovision
                        | TriggerKind::PostDeployAllComponents
                        | TriggerKind::PostUpdateInputs
                )
            }
            /// Spelling in the config.
            pub fn name(self) -> &'static str {
                match self { $(TriggerKind::$name => $word,)* }
            }
            /// Parses a trigger, including older spellings.
            pub fn parse(word: &str) -> Option<Self> {
                Some(match word {
                    $($word => TriggerKind::$name,)*
                    "pre-component-deploy" => TriggerKind::PreDeployComponent,
                    "post-component-deploy" => TriggerKind::PostDeployComponent,
                    _ => return None,
                })
            }
        }
    };
}

trigger_kinds! {
    Manual = "manual",
    Cron = "cron",
    PreProvision = "pre-provision",
    PostProvision = "post-provision",
    PreReprovision = "pre-reprovision",
    PostReprovision = "post-reprovision",
    PreDeprovision = "pre-deprovision",
    PostDeprovision = "post-deprovision",
    PreDeployComponent = "pre-deploy-component",
    PostDeployComponent = "post-deploy-component",
    PreTeardownComponent = "pre-teardown-component",
    PostTeardownComponent = "post-teardown-component",
    PreDeployAllComponents = "pre-deploy-all-components",
    PostDeployAllComponents = "post-deploy-all-components",
    PreTeardownAllComponents = "pre-teardown-all-components",
    PostTeardownAllComponents = "post-teardown-all-components",
    PreDeprovisionSandbox = "pre-deprovision-sandbox",
    PostDeprovisionSandbox = "post-deprovision-sandbox",
    PreReprovisionSandbox = "pre-reprovision-sandbox",
    PostReprovisionSandbox = "post-reprovision-sandbox",
    PreUpdateInputs = "pre-update-inputs",
    PostUpdateInputs = "post-update-inputs",
    PreSecretsSync = "pre-secrets-sync",
    PostSecretsSync = "post-secrets-sync",
}

/// An ordered list of actions and deploys. This release reads and shows it, but does not run it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Runbook {
    /// Location; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub name: String,
    pub file: String,
    pub description: String,
    pub readme: Option<Text>,
    pub steps: Vec<RunbookStep>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct RunbookStep {
    /// Location; see [`crate::AppConfig::span`].
    #[serde(skip)]
    pub at: Origin,
    pub name: String,
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inline_contents: Option<Text>,
    pub env_vars: BTreeMap<String, Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}
