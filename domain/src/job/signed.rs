//! What a runner signed: anybody can see that it said so, without asking us.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

/// How an execution ended, under its runner's signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Signed {
    /// The JSON that was signed, byte for byte: the payload of a DSSE envelope of type
    /// `application/vnd.stead.execution.v1+json`.
    pub statement: String,
    /// The identity key that the runner had, hexadecimal.
    pub key: String,
    /// Ed25519 over the envelope's pre-authentication encoding, base64.
    pub signature: String,
}
