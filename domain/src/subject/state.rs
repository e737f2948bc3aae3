//! What we know of a subject.
use std::{fmt, str::FromStr};

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::{
    actor::Actor,
    ids::{InstallId, PrincipalId},
};

/// What became of what is kept of a subject.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Subject {
    /// Who decided that nobody reads it any more; nothing while everybody may.
    pub shredded: Option<Shredding>,
    /// Whether the server has no copy left.
    pub erased: bool,
}

/// Who made it unreadable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Shredding {
    /// Who decided.
    pub by: Actor,
    /// Why.
    pub reason: String,
}

/// Whose data it is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Encode, Decode,
)]
#[serde(try_from = "String", into = "String")]
pub enum SubjectId {
    /// A customer's.
    Install(InstallId),
    /// A person's or a service's.
    Principal(PrincipalId),
}

/// A text that names no subject.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{0:?} names no subject: expected ins_… or prn_…")]
pub struct SubjectIdError(String);

impl fmt::Display for SubjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubjectId::Install(id) => write!(f, "{id}"),
            SubjectId::Principal(id) => write!(f, "{id}"),
        }
    }
}

impl FromStr for SubjectId {
    type Err = SubjectIdError;
    fn from_str(text: &str) -> Result<Self, SubjectIdError> {
        if let Ok(id) = text.parse() {
            return Ok(SubjectId::Install(id));
        }
        text.parse().map(SubjectId::Principal).map_err(|_| SubjectIdError(text.into()))
    }
}

impl TryFrom<String> for SubjectId {
    type Error = SubjectIdError;
    fn try_from(text: String) -> Result<Self, SubjectIdError> {
        text.parse()
    }
}

impl From<SubjectId> for String {
    fn from(id: SubjectId) -> String {
        id.to_string()
    }
}
