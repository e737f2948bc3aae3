//! Sensitive values on the wire: encrypted to the keys of an install, so that the server cannot read
//! them, and the places of a manifest in which the runner inserts them.
use base64::{Engine as _, engine::general_purpose::STANDARD};
pub use domain::secret::{
    Consumer, MAX_CIPHERTEXT_BYTES, MAX_VALUE_BYTES, Through, apply, of_placeholder, placeholder,
};
use domain::{ids::ValueId, secret};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use utoipa::ToSchema;

use crate::{manifest::Manifest, runner::JobKind};

/// Feature of a session: the runner inserts sensitive values into manifests.
pub const FEATURE: &str = "secret_references";
/// Maximum number of sensitive values in one manifest.
pub const MAX_REFERENCES: usize = 1_000;
/// Maximum number of consumers of one value.
pub const MAX_CONSUMERS: usize = 2_000;

/// Place of a manifest in which the runner inserts a sensitive value. Until then, the place contains
/// `encrypted:` and the id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SecretReference {
    /// RFC 6901 pointer to a string below `/inputs` or `/env`.
    pub pointer: String,
    /// First byte of the place in the decoded string.
    pub start: u64,
    /// First byte after the place.
    pub end: u64,
    /// Id of the value: `val_` and a ULID.
    #[schema(value_type = String)]
    pub id: ValueId,
    /// Functions that the runner applies to the value, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub through: Vec<Through>,
}

/// Sensitive value, encrypted to the keys of an install. All members except `json` are part of the
/// associated data, so the runner detects a change of each of them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EncryptedValue {
    /// Id of the value: `val_` and a ULID.
    #[schema(value_type = String)]
    pub id: ValueId,
    /// Name of the value: `inputs.` and the name of an input, or `outputs.`, the name of the
    /// component and the name of its output.
    #[schema(max_length = 512)]
    pub name: String,
    /// Jobs that may use the value.
    pub consumers: Vec<Consumer>,
    /// True if the install encrypted and signed the value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub signed: bool,
    /// True for a list or a map, as JSON.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub json: bool,
    /// Ciphertext in base64. Absent for a value that the customer set: it never leaves the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub ciphertext: Option<Ciphertext>,
}

/// Bytes of a ciphertext, in base64 on the wire.
#[derive(Clone, PartialEq, Eq)]
pub struct Ciphertext(pub Vec<u8>);

impl Serialize for Ciphertext {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Ciphertext {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        STANDARD.decode(text).map(Ciphertext).map_err(D::Error::custom)
    }
}

impl std::fmt::Debug for EncryptedValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EncryptedValue")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl EncryptedValue {
    /// Explains why the server does not store the value. `None` if it does.
    pub fn problem(&self) -> Option<&'static str> {
        let size = self.ciphertext.as_ref().map_or(0, |ciphertext| ciphertext.0.len());
        if size > MAX_CIPHERTEXT_BYTES {
            Some("is larger than 64 KiB")
        } else if self.consumers.len() > MAX_CONSUMERS {
            Some("names more than 2000 permitted jobs")
        } else if self.name.len() > 512
            || self.consumers.iter().any(|one| one.component.len() > 512 || one.job_kind.len() > 32)
        {
            Some("has a name that is too long")
        } else {
            None
        }
    }
}

/// Name of an input's value.
pub fn input_name(input: &str) -> String {
    format!("inputs.{input}")
}

/// Name of an output's value.
pub fn output_name(component: &str, output: &str) -> String {
    format!("outputs.{component}.{output}")
}

/// Consumers of a value that each job of the install may use.
pub fn all_jobs() -> Vec<Consumer> {
    vec![Consumer { component: secret::ANY.into(), job_kind: secret::ANY.into() }]
}

/// Name of an action as a consumer.
pub fn action_consumer(action: &str) -> String {
    format!("action:{action}")
}

/// Returns the consumer that a job is: its component or action, and its kind.
pub fn consumer_of(manifest: &Manifest) -> Consumer {
    let text = |key: &str| manifest.inputs.get(key).and_then(|name| name.as_str());
    let component = match manifest.kind {
        JobKind::Action => text("action").map(action_consumer),
        JobKind::Resolve
        | JobKind::Build
        | JobKind::Preflight
        | JobKind::Plan
        | JobKind::Apply
        | JobKind::Sync => text("component").map(str::to_owned),
    };
    Consumer { component: component.unwrap_or_default(), job_kind: manifest.kind.as_str().into() }
}
