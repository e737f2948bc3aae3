//! Installs, the copies of an app in customers' accounts.
use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use domain::ids::{AppId, BuildId, InstallId, RunId, RunnerId, TokenId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{Diagnostic, apps::InputDifference};
use crate::moment;

/// Request to create an install. It provisions itself as soon as its runner has enrolled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateInstall {
    /// App, name or id.
    pub app: String,
    /// Name, unique on this server: lower-case letters, digits and hyphens.
    #[schema(max_length = 63)]
    pub name: String,
    /// Values of the app's inputs, as text. Omitted inputs have their defaults.
    #[serde(default)]
    pub inputs: BTreeMap<String, String>,
    /// True to apply each plan without approval.
    #[serde(default)]
    pub auto_approve: bool,
    /// True to apply each plan of the first provision without approval. Later runs require
    /// approval.
    #[serde(default)]
    pub auto_approve_first: bool,
    /// Config version. Default: the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_version: Option<u32>,
    /// Known outputs of the customer's stack, such as account and region. Outputs that the runner
    /// reports at its enrolment have precedence. Do not pass secrets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stack_outputs: BTreeMap<String, Value>,
}

/// Created install, with the one-time enrolment command for its customer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstallCreated {
    /// Id of the install.
    #[schema(value_type = String)]
    pub id: InstallId,
    /// Name of the install.
    pub name: String,
    /// Id of the app.
    #[schema(value_type = String)]
    pub app: AppId,
    /// Config version that the install starts with.
    pub config_version: u32,
    /// One-time enrolment of a runner. Absent in the response to a repeated request, because the
    /// server does not store the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrolment: Option<Enrolment>,
    /// Position after which reads include the change.
    pub position: u64,
}

/// One-time enrolment of one runner. The token is shown once: the server stores only its hash.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Enrolment {
    /// Id of the token. Not secret.
    #[schema(value_type = String)]
    pub id: TokenId,
    /// Enrolment token. Secret.
    pub token: String,
    /// Expiry of the token.
    #[serde(with = "moment")]
    pub expires_at: DateTime<Utc>,
    /// SHA-256 of the server's manifest key, which the runner pins.
    pub server_key: String,
    /// URL of the Runner API.
    pub runner_url: String,
    /// Command for the customer. It reads the token from standard input and does not contain it.
    pub command: String,
}

/// New enrolment token for an install or for a build runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EnrolmentIssued {
    /// Token and command. Absent in the response to a repeated request, because the server does not
    /// store the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrolment: Option<Enrolment>,
    /// Position after which reads include the change.
    pub position: u64,
}

/// Install of an app.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Install {
    /// Id of the install.
    #[schema(value_type = String)]
    pub id: InstallId,
    /// Name of the install.
    pub name: String,
    /// Id of the app.
    #[schema(value_type = String)]
    pub app: AppId,
    /// Name of the app.
    pub app_name: String,
    /// Config version that the install follows.
    pub config_version: u32,
    /// State: `waiting_for_runner`, `provisioning`, `updating`, `tearing_down`, `deprovisioning`,
    /// `active`, `incomplete`, `failed`, `torn_down`, `empty` or `deprovisioned`. See
    /// docs/operations.md.
    pub state: String,
    /// True if plans are applied without approval.
    pub auto_approve: bool,
    /// Values of the inputs, including defaults.
    pub inputs: BTreeMap<String, Value>,
    /// Outputs of the customer's stack, reported by the runner at enrolment or set by hand: account, region …
    pub stack_outputs: BTreeMap<String, Value>,
    /// Id of the install's runner. Absent before a runner enrolled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub runner: Option<RunnerId>,
    /// State of the runner, as in `/v1/runners`. `disconnected` also if the runner is active but
    /// makes no calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner_state: Option<String>,
    /// Time of the last call of the runner.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub runner_last_contact: Option<DateTime<Utc>>,
    /// Sandbox of the install. Absent if the app has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<InstallComponent>,
    /// Components, sorted by name.
    pub components: Vec<InstallComponent>,
    /// Settings of the config version that this release parses but ignores, with the effect.
    /// Present only in the response for one install.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_acted_on: Vec<Diagnostic>,
    /// Ids of unfinished runs.
    #[schema(value_type = Vec<String>)]
    pub runs: Vec<RunId>,
    /// Creation time.
    #[serde(with = "moment")]
    pub created_at: DateTime<Utc>,
    /// Last position that the response includes.
    pub position: u64,
}

/// Component of an install.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstallComponent {
    /// Name of the component. `sandbox` for the sandbox.
    pub name: String,
    /// Type of the component.
    pub kind: String,
    /// True if deploys of the install skip the component.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
    /// State: `absent`, `deployed`, `incomplete` or `torn_down`. `incomplete` means that an apply
    /// is in progress or failed, so the actual state is unknown.
    pub state: String,
    /// Config version of the last deploy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_version: Option<u32>,
    /// Id of the deployed build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub build: Option<BuildId>,
    /// Outputs of the component.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, Value>,
    /// Id of the run that holds the component's reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub reserved_by: Option<RunId>,
}

/// Filters and pagination of installs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct InstallsQuery {
    /// Filter by app, name or id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// Maximum number of items, 1 to 200. Default: 50.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// Pagination cursor, the `next` of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Position that the response must include. The server waits for it for at most 5 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// Change of an install. At least one of inputs, stack outputs, config version, components and
/// approval is required.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateInstall {
    /// New values of these inputs, for the config version that the install follows after the
    /// change. `null` removes a value. Omitted inputs keep their values. The change requests a run
    /// for the affected components.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<BTreeMap<String, Option<String>>>,
    /// New values of these outputs of the customer's stack. `null` removes a value. Omitted outputs
    /// keep their values. The change requests a run for the affected components.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack_outputs: Option<BTreeMap<String, Option<Value>>>,
    /// Config version to move to, later or earlier. The change requests a run for the components
    /// that differ. Inputs that the version does not define are stored but not passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_version: Option<u32>,
    /// Config version whose inputs to restore first, as the install last had them with this
    /// version. `inputs` has precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs_of: Option<u32>,
    /// Components that deploys include (`true`) or skip (`false`). Omitted components keep their
    /// setting. The change requests a run that deploys enabled components and tears down disabled
    /// ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub components: BTreeMap<String, bool>,
    /// True to apply plans without approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_approve: Option<bool>,
    /// Reason of the caller for the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 2000)]
    pub reason: Option<String>,
}

/// Acceptance of a component state although a newer one, or one of another lineage, is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AcceptState {
    /// Lineage of the state, as in the runner's refusal.
    #[schema(max_length = 128)]
    pub lineage: String,
    /// Serial number of the state.
    pub serial: u64,
    /// Reason of the caller for accepting the state.
    #[schema(max_length = 2000)]
    pub reason: String,
}

/// Result of a change of an install.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstallUpdated {
    /// Id of the install.
    #[schema(value_type = String)]
    pub id: InstallId,
    /// True if the request changed anything.
    pub changed: bool,
    /// Id of the run that applies the change. Absent if there are no changes to apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub run: Option<RunId>,
    /// Inputs that a move to an earlier version keeps although they had another value with that
    /// version. `inputs_of` restores them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_inputs: Vec<InputDifference>,
    /// Position after which reads include the change.
    pub position: u64,
}

/// Point in time of a state. Default: the head of the log. At most one of `position` and `time` is
/// allowed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StateQuery {
    /// Position as of which to read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// Time as of which to read.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub time: Option<DateTime<Utc>>,
    /// Position that the response must include. The server waits for it for at most 5 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// State of an install as templates read it, under `.nuon` and `.stead`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstallState {
    /// Id of the install.
    #[schema(value_type = String)]
    pub id: InstallId,
    /// Position that the state is as of.
    pub position: u64,
    /// State as a JSON object.
    pub state: Value,
}
