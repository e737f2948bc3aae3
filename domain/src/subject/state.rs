//! State of a data subject, folded from its events.
use std::{fmt, str::FromStr};

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::{
    actor::Actor,
    ids::{InstallId, PrincipalId},
};

/// Progress of the erasure of a subject's data.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Subject {
    /// Decision to delete the key. `None` while the data is readable.
    pub shredded: Option<Shredding>,
    /// True if the server has erased all reachable copies.
    pub erased: bool,
}

/// Decision to delete the key of a subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Shredding {
    pub by: Actor,
    pub reason: String,
}

/// Id of a data subject: of an install or a principal.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Encode, Decode,
)]
#[serde(try_from = "String", into = "String")]
pub enum SubjectId {
    /// Customer, identified by an install.
    Install(InstallId),
    /// User or service.
    Principal(PrincipalId),
}

/// Text that is not the id of a data subject.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("invalid data subject {0:?}: expected ins_… or prn_…")]
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
