//! Installs: copies of an app in customers' accounts.
use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use domain::ids::{AppId, BuildId, InstallId, RunId, RunnerId, TokenId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{Diagnostic, apps::InputDifference};
use crate::moment;

/// Make an install. It provisions itself as soon as its runner has enrolled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateInstall {
    /// The app: its name or id.
    pub app: String,
    /// Unique on this server: lower case letters, digits and hyphens.
    #[schema(max_length = 63)]
    pub name: String,
    /// Values of the app's inputs, as text; defaults fill the rest.
    #[serde(default)]
    pub inputs: BTreeMap<String, String>,
    /// Apply each plan without asking.
    #[serde(default)]
    pub auto_approve: bool,
    /// Apply each plan of the first provision without asking, and ask in every later run.
    #[serde(default)]
    pub auto_approve_first: bool,
    /// Absent: the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_version: Option<u32>,
    /// What the customer's stack gives out, as far as you know it: account, region … What the runner brings when it
    /// enrols has precedence. No secrets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stack_outputs: BTreeMap<String, Value>,
}

/// An install that was made, and what its customer has to run, once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstallCreated {
    /// Its id.
    #[schema(value_type = String)]
    pub id: InstallId,
    /// Its name.
    pub name: String,
    /// The app.
    #[schema(value_type = String)]
    pub app: AppId,
    /// Which config version it starts with.
    pub config_version: u32,
    /// The one-time permission to enrol a runner. Absent when a repeated call repeats the answer: the token is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrolment: Option<Enrolment>,
    /// Visible from here.
    pub position: u64,
}

/// The one-time permission to enrol one runner. Shown once; the server keeps only a hash.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Enrolment {
    /// Names the token; no secret.
    #[schema(value_type = String)]
    pub id: TokenId,
    /// The secret.
    pub token: String,
    /// Until when it can be used.
    #[serde(with = "moment")]
    pub expires_at: DateTime<Utc>,
    /// SHA-256 of the server's manifest key, that the runner pins.
    pub server_key: String,
    /// The address of the Runner API.
    pub runner_url: String,
    /// What the customer runs. It asks for the token on standard input, and does not hold it.
    pub command: String,
}

/// A new enrolment token for an install, or for a build runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EnrolmentIssued {
    /// The token and how to use it. Absent when a repeated call repeats the answer: the token is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrolment: Option<Enrolment>,
    /// Visible from here.
    pub position: u64,
}

/// An install.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Install {
    /// Its id.
    #[schema(value_type = String)]
    pub id: InstallId,
    /// Its name.
    pub name: String,
    /// Of which app.
    #[schema(value_type = String)]
    pub app: AppId,
    /// The app's name.
    pub app_name: String,
    /// Which config version it is on.
    pub config_version: u32,
    /// `waiting_for_runner`, `provisioning`, `updating`, `tearing_down`, `deprovisioning`, `active`, `incomplete`,
    /// `failed`, `torn_down`, `empty` or `deprovisioned`; docs/operations.md says when.
    pub state: String,
    /// Whether plans are applied without asking.
    pub auto_approve: bool,
    /// The values of its inputs, defaults included.
    pub inputs: BTreeMap<String, Value>,
    /// Outputs of the customer's stack, reported by the runner at enrolment or set by hand: account, region …
    pub stack_outputs: BTreeMap<String, Value>,
    /// Its runner, once enrolled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub runner: Option<RunnerId>,
    /// State of the runner, as in `/v1/runners`; `disconnected` also if it is active and has stopped polling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner_state: Option<String>,
    /// When the runner called last.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub runner_last_contact: Option<DateTime<Utc>>,
    /// The sandbox under it. Absent: the app has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<InstallComponent>,
    /// Its components, by name.
    pub components: Vec<InstallComponent>,
    /// Settings of its config version that this release reads and does not act on, with what happens
    /// instead. Only in the response for one install.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_acted_on: Vec<Diagnostic>,
    /// Runs that are not finished.
    #[schema(value_type = Vec<String>)]
    pub runs: Vec<RunId>,
    /// When it was made.
    #[serde(with = "moment")]
    pub created_at: DateTime<Utc>,
    /// The last position that this answer includes.
    pub position: u64,
}

/// A component of the app as this install has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstallComponent {
    /// Its name; `sandbox` for the sandbox.
    pub name: String,
    /// Its type.
    pub kind: String,
    /// Whether deploys of the install leave it out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
    /// `absent`, `deployed`, `incomplete` (an apply goes on, or did not succeed: nobody can say what is there)
    /// or `torn_down`.
    pub state: String,
    /// The config version that it was last deployed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_version: Option<u32>,
    /// The build that runs there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub build: Option<BuildId>,
    /// What it gave back.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, Value>,
    /// Run that has reserved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub reserved_by: Option<RunId>,
}

/// Which installs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct InstallsQuery {
    /// Of one app: its name or id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// See the list parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// See the list parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// See the list parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// Change an install: at least one of inputs, stack outputs, config version and approval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateInstall {
    /// New values of these inputs, as the config version that it is on afterwards takes them; `null`
    /// takes one back; others keep theirs. Requests a run that reaches only what they reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<BTreeMap<String, Option<String>>>,
    /// New values of these outputs of the customer's stack; `null` takes one back; others keep theirs. Requests a
    /// run that reaches only what they reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack_outputs: Option<BTreeMap<String, Option<Value>>>,
    /// Move to this config version, a later or an earlier one. Requests a run that reaches only what
    /// differs from what is there. Inputs that it does not know are kept and not passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_version: Option<u32>,
    /// First restore the inputs that it had when it last followed this config version; `inputs` has precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs_of: Option<u32>,
    /// Whether deploys include these components (`true`) or leave them out; others keep their setting.
    /// Requests a run that deploys what is enabled and tears down what is disabled.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub components: BTreeMap<String, bool>,
    /// Apply plans without asking, or ask again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_approve: Option<bool>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 2000)]
    pub reason: Option<String>,
}

/// Accept a state of a component although a newer one, or one of another lineage, is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AcceptState {
    /// Lineage of the state, as the runner's refusal names it.
    #[schema(max_length = 128)]
    pub lineage: String,
    /// Its serial.
    pub serial: u64,
    /// Why.
    #[schema(max_length = 2000)]
    pub reason: String,
}

/// What a change of an install led to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstallUpdated {
    /// The install.
    #[schema(value_type = String)]
    pub id: InstallId,
    /// False: it was already so.
    pub changed: bool,
    /// The run that brings it about. Absent: nothing is reached by the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub run: Option<RunId>,
    /// Inputs that a move to an earlier version keeps, and that had another value when the install last followed that
    /// version. `inputs_of` restores them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_inputs: Vec<InputDifference>,
    /// Visible from here.
    pub position: u64,
}

/// Which state: of now, or of then. At most one of the two.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StateQuery {
    /// As of this position.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// As of this moment.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment::maybe")]
    pub time: Option<DateTime<Utc>>,
    /// Wait (at most 5 s) until the answer includes this position.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_position: Option<u64>,
}

/// What templates see of an install, as `.nuon` and as `.stead`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InstallState {
    /// The install.
    #[schema(value_type = String)]
    pub id: InstallId,
    /// As of this position.
    pub position: u64,
    /// The data.
    pub state: Value,
}
