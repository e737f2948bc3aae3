//! Signed result of a runner. Any party can verify it without the server.
use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

/// Result of an execution, signed by its runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SignedResult {
    /// Signed JSON, byte for byte: the payload of a DSSE envelope of type
    /// `application/vnd.stead.execution.v1+json`.
    pub statement: String,
    /// Ed25519 public key that verifies the signature, hexadecimal.
    pub key: String,
    /// Ed25519 signature of the envelope's pre-authentication encoding, base64.
    pub signature: String,
}
