//! Installs, the copies of an app in customers' accounts.
use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use domain::ids::{AppId, BuildId, InstallId, RunId, RunnerId, TokenId, ValueId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{Diagnostic, apps::InputDifference};
use crate::{
    moment,
    secret::{Consumer, EncryptedValue},
};

/// Request to create an install. The server provisions the install as soon as its runner has
/// enrolled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateInstall {
    /// Name or id of the app.
    pub app: String,
    /// Name of the install: lower-case letters, digits, `-` and `_`. The first and the last
    /// character are letters or digits. Only a deprovisioned install may have the same name.
    #[schema(max_length = 63)]
    pub name: String,
    /// Input values by name. An omitted input has its default.
    #[serde(default)]
    pub inputs: BTreeMap<String, String>,
    /// True to approve all plans automatically.
    #[serde(default)]
    pub auto_approve: bool,
    /// True to approve the plans of the first provision automatically. This does not approve the
    /// plans of later runs.
    #[serde(default)]
    pub auto_approve_first: bool,
    /// Config version that the install follows. Default: the newest version of the app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_version: Option<u32>,
    /// Outputs of the customer's stack by name, for example account and region. Outputs that the
    /// runner reports at its enrolment have precedence. Do not pass secrets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stack_outputs: BTreeMap<String, Value>,
}

/// Created install, with the one-time enrolment command for its customer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstallCreated {
    /// Id of the install: `ins_` and a ULID.
    #[schema(value_type = String)]
    pub id: InstallId,
    /// Name of the install, unique among the installs that are not deprovisioned.
    pub name: String,
    /// Id of the app: `app_` and a ULID.
    #[schema(value_type = String)]
    pub app: AppId,
    /// Config version that the install follows.
    pub config_version: u32,
    /// Enrolment token with its command. Absent in the response to a repeated request, because the
    /// server does not store the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrolment: Option<Enrolment>,
    /// Log position of the change. A read with this `min_position` includes the change.
    pub position: u64,
}

/// Enrolment token of one runner, with the command that uses it. The server stores only a digest of
/// the token, so this response is the only one with the token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Enrolment {
    /// Id of the token: `tok_` and a ULID. The id is not secret.
    #[schema(value_type = String)]
    pub id: TokenId,
    /// Enrolment token, a secret.
    pub token: String,
    /// Time from which the token is invalid.
    #[serde(with = "moment")]
    pub expires_at: DateTime<Utc>,
    /// Fingerprint of the server's manifest key, `sha256:<hex>`. The runner trusts only this key at
    /// its enrolment.
    pub server_key: String,
    /// Base URL of the Runner API.
    pub runner_url: String,
    /// Shell command that enrols and starts the runner. The command reads the token from standard
    /// input.
    pub command: String,
}

/// Request for an enrolment token of an install.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateEnrolmentToken {
    /// Id of a former runner, `rnr_` and a ULID, whose keys the customer recovers with this token,
    /// although those of another runner replaced them. A thief of its host can then recover them as
    /// well, with this token. Absent for an ordinary enrolment or recovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub recover_from: Option<RunnerId>,
}

/// New enrolment token for an install or for a build runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EnrolmentIssued {
    /// Enrolment token with its command. Absent in the response to a repeated request, because the
    /// server does not store the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrolment: Option<Enrolment>,
    /// Log position of the change. A read with this `min_position` includes the change.
    pub position: u64,
}

/// Install with its desired and its actual state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Install {
    /// Id of the install: `ins_` and a ULID.
    #[schema(value_type = String)]
    pub id: InstallId,
    /// Name of the install, unique among the installs that are not deprovisioned.
    pub name: String,
    /// Id of the app: `app_` and a ULID.
    #[schema(value_type = String)]
    pub app: AppId,
    /// Name of the app, which never changes.
    pub app_name: String,
    /// Config version that the install follows.
    pub config_version: u32,
    /// State: `waiting_for_runner`, `provisioning`, `updating`, `tearing_down`, `deprovisioning`,
    /// `active`, `incomplete`, `failed`, `torn_down`, `empty` or `deprovisioned`.
    /// `docs/operations.md` explains each state.
    pub state: String,
    /// True if all plans are approved automatically.
    pub auto_approve: bool,
    /// Input values by name, including defaults.
    pub inputs: BTreeMap<String, Value>,
    /// Required sensitive inputs without a value. The install cannot be deployed before they are set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
    /// Outputs of the customer's stack by name, for example account and region. The runner reported
    /// them at its enrolment, or the vendor set them.
    pub stack_outputs: BTreeMap<String, Value>,
    /// Id of the install's runner: `rnr_` and a ULID. Absent before a runner enrolled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub runner: Option<RunnerId>,
    /// State of the runner, as in `/v1/runners`. In addition, an active runner without recent calls
    /// is `disconnected`. Absent before a runner enrolled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner_state: Option<String>,
    /// Time of the runner's last call. Absent if the server knows no call.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub runner_last_contact: Option<DateTime<Utc>>,
    /// Public keys of the install, which its runner reported. Absent before a runner reported them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<InstallKeys>,
    /// Sandbox of the install. Absent if neither the config version nor the install has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<InstallComponent>,
    /// Components of the config version, and deployed components that the config version no longer
    /// has, sorted by name.
    pub components: Vec<InstallComponent>,
    /// Settings of the config version that this release parses but ignores, each with the effect.
    /// Present only in the response for one install.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored_settings: Vec<Diagnostic>,
    /// Ids of the runs that have not finished.
    #[schema(value_type = Vec<String>)]
    pub runs: Vec<RunId>,
    /// Time when the install was created.
    #[serde(with = "moment")]
    pub created_at: DateTime<Utc>,
    /// Last log position that the response includes.
    pub position: u64,
}

/// Public keys of an install. Compare their fingerprint with the one that the customer's
/// `stead-runner fingerprint` prints: the server could return other keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstallKeys {
    /// Id of the server's log, which the fingerprint covers.
    pub log_id: String,
    /// Generation of the keys, from 1.
    pub generation: u32,
    /// X25519 public key to encrypt data for the install, 64 lower-case hexadecimal digits.
    pub encryption_key: String,
    /// Ed25519 public key that verifies data of the install, 64 lower-case hexadecimal digits.
    pub signing_key: String,
    /// Keys of earlier generations, the last one first. Each signed its successor at the recovery of
    /// the install on another host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<FormerKeys>,
}

/// Public keys of an earlier generation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FormerKeys {
    /// Generation of the keys, from 1.
    pub generation: u32,
    /// X25519 public key, 64 lower-case hexadecimal digits.
    pub encryption_key: String,
    /// Ed25519 public key, 64 lower-case hexadecimal digits.
    pub signing_key: String,
    /// Signature of the next keys by this signing key, base64
    /// (`application/vnd.stead.install-keys-succession.v1+json`).
    pub signature: String,
}

/// State, deployed build and outputs of one component in an install.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstallComponent {
    /// Name of the component, or `sandbox`.
    pub name: String,
    /// Component type: `terraform_module`, or the name of a plugin. `no longer in the config` for a
    /// component that the config version does not have.
    pub kind: String,
    /// True if deploys of the install skip the component.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
    /// State: `absent`, `deployed`, `incomplete` or `torn_down`. An `incomplete` component may be
    /// partly changed, because its last apply is in progress or did not succeed.
    pub state: String,
    /// Config version of the last run that started an apply of the component, or whose plan for it
    /// had no changes. Absent if the component is not deployed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_version: Option<u32>,
    /// Id of the deployed build: `bld_` and a ULID. Absent if the component is not deployed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub build: Option<BuildId>,
    /// Output values by name, from the last successful apply or plan without changes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, Value>,
    /// Id of the run that has reserved the component: `run_` and a ULID. Absent if no run has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub reserved_by: Option<RunId>,
    /// Drift that the newest check of the component found, unless it was deployed since. Present only
    /// in the response for one install.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<ComponentDrift>,
}

/// Difference between a component and its config that a drift check found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ComponentDrift {
    /// Id of the drift check: `run_` and a ULID.
    #[schema(value_type = String)]
    pub run: RunId,
    /// Time of the result.
    #[serde(with = "moment")]
    pub found_at: DateTime<Utc>,
    /// Number of resources that a deploy would create.
    pub add: u64,
    /// Number of resources that a deploy would change.
    pub change: u64,
    /// Number of resources that a deploy would destroy.
    pub destroy: u64,
}

/// Order of a list of installs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum InstallsOrder {
    /// Oldest first.
    #[serde(rename = "created")]
    Created,
    /// Newest first.
    #[serde(rename = "-created")]
    CreatedDescending,
    /// By name, from a to z.
    #[serde(rename = "name")]
    Name,
    /// By name, from z to a.
    #[serde(rename = "-name")]
    NameDescending,
}

/// Filters and pagination of installs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct InstallsQuery {
    /// Filter by the name or id of an app.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// Filter by a part of the name, in upper or lower case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<String>,
    /// Filter by the config version that the install follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// Filter by state, such as `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Filter by the recorded state of the runner, such as `disconnected`, or `none` for installs
    /// without a runner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner: Option<String>,
    /// True to select the installs that need attention: those that are failed or incomplete, or
    /// whose runner is disconnected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention: Option<bool>,
    /// Order: `created`, `-created` (newest first), `name` or `-name`. Default: `created`. A cursor is
    /// valid only for the order of its page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sort: Option<InstallsOrder>,
    /// Maximum number of items, 1 to 200. Default: 50.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// Pagination cursor: `next` of the previous page. Default: the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Log position that the response must include. The server waits at most 5 s for the
    /// projections to reach the position, then responds with 503 `projection_lag`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// Change of an install. At least one member other than `reason` is required.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateInstall {
    /// New input values by name, valid for the config version after the change. `null` removes a
    /// value, and omitted inputs keep their values. The change requests a run for the affected
    /// components.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<BTreeMap<String, Option<String>>>,
    /// New values of sensitive inputs, each encrypted to the keys of the install. The change
    /// requests a run for the affected components.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub encrypted: Vec<EncryptedValue>,
    /// New outputs of the customer's stack by name. `null` removes an output, and omitted outputs
    /// keep their values. The change requests a run for the affected components.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack_outputs: Option<BTreeMap<String, Option<Value>>>,
    /// Later or earlier config version to follow. The change requests a run for the affected
    /// components. The server stores inputs that the version does not define, but does not pass
    /// them to components.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_version: Option<u32>,
    /// Config version whose inputs to restore: the inputs that the install had when it last
    /// followed that version. Values in `inputs` have precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs_of: Option<u32>,
    /// Components that deploys include (`true`) or exclude (`false`). Omitted components keep their
    /// setting. The change requests a run that deploys included components and destroys excluded
    /// ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub components: BTreeMap<String, bool>,
    /// True to approve all plans automatically, false to require approval. Absent: no change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_approve: Option<bool>,
    /// Reason for the change, which the log stores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 2000)]
    pub reason: Option<String>,
    /// True to make all plans of the requested run that depend on none of its changes before its
    /// first change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plan_all: bool,
}

/// Request to accept a state version of a component, even if a newer state or a state of another
/// lineage is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AcceptState {
    /// Lineage of the state, from the runner's refusal.
    #[schema(max_length = 128)]
    pub lineage: String,
    /// Serial number of the state, from the runner's refusal.
    pub serial: u64,
    /// True to accept another state than the newest one of the server, which each job reads. Each
    /// later job is refused until the runner's host has this state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// Reason for the acceptance, which the log stores.
    #[schema(max_length = 2000)]
    pub reason: String,
}

/// Config version whose sensitive inputs to list.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SensitiveInputsQuery {
    /// Config version. Default: the version that the install follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_version: Option<u32>,
    /// Log position that the response must include. The server waits at most 5 s for the
    /// projections to reach the position, then responds with 503 `projection_lag`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// Sensitive inputs of a config version, and their values in an install.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SensitiveInputs {
    /// Config version.
    pub config_version: u32,
    /// Sensitive inputs, in the order of the config.
    pub inputs: Vec<SensitiveInput>,
}

/// Sensitive input, without its value, which the server does not know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SensitiveInput {
    /// Name of the input.
    pub name: String,
    /// Type of the value: `string`, `number`, `list`, `json` or `bool`.
    pub kind: String,
    /// True if the install cannot be deployed without a value.
    pub required: bool,
    /// True if the config has a default.
    pub has_default: bool,
    /// Id of the value: `val_` and a ULID. Absent if the install has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub value: Option<ValueId>,
    /// Jobs that read the input in this config version.
    pub readers: Vec<Consumer>,
}

/// Result of a change of an install.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstallUpdated {
    /// Id of the install: `ins_` and a ULID.
    #[schema(value_type = String)]
    pub id: InstallId,
    /// True if the request changed the install.
    pub changed: bool,
    /// Id of the run that applies the change: `run_` and a ULID. Absent if the change affects no
    /// component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub run: Option<RunId>,
    /// Inputs that had other values when the install last followed the new config version. The
    /// change kept the current values. A request with `inputs_of` restores the earlier ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_inputs: Vec<InputDifference>,
    /// Log position of the change. A read with this `min_position` includes the change.
    pub position: u64,
}

/// Point in time. At most one of `position` and `time` is allowed. Default: the head of the log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StateQuery {
    /// Last log position that the response includes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// Last recording time that the response includes.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::optional")]
    pub time: Option<DateTime<Utc>>,
    /// Log position that the response must include. The server waits at most 5 s for the
    /// projections to reach the position, then responds with 503 `projection_lag`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// State of an install as templates read it, under `.nuon` and `.stead`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstallState {
    /// Id of the install: `ins_` and a ULID.
    #[schema(value_type = String)]
    pub id: InstallId,
    /// Last log position that the state includes.
    pub position: u64,
    /// State as a JSON object with the members `nuon` and `stead`.
    pub state: Value,
}
