//! What we know of a principal's access.
use std::{collections::BTreeSet, fmt};

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::{decider::Timestamp, digest::Digest, ids::TokenId};

/// What a principal may do.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Access {
    /// What it is. Nothing before it is known.
    pub kind: Option<PrincipalKind>,
    /// What it may do.
    pub roles: BTreeSet<Role>,
    /// Every token that was given out.
    pub tokens: Vec<IssuedToken>,
    /// Those that are heard no more.
    pub revoked: BTreeSet<TokenId>,
}

/// Who logs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PrincipalKind {
    /// A human being.
    Person,
    /// A program of the vendor's.
    Service,
}

/// What a principal may do.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Encode, Decode,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Everything.
    Owner,
    /// Look, and say yes or no to plans.
    Approver,
    /// Look, and read the log with its proofs.
    Auditor,
    /// Look.
    Viewer,
}

/// A token that was given out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IssuedToken {
    /// Its id, which is no secret.
    pub token: TokenId,
    /// Of the secret, which is kept nowhere.
    pub sha256: Digest,
    /// After this moment it is heard no more; never, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::moment::optional")]
    #[cfg_attr(test, schemars(with = "Option<Timestamp>"))]
    #[bincode(with_serde)]
    pub expires_at: Option<Timestamp>,
}

impl Access {
    /// The token of this id, revoked or not.
    pub fn token(&self, id: TokenId) -> Option<&IssuedToken> {
        self.tokens.iter().find(|token| token.token == id)
    }

    /// Whether this token is heard at this moment.
    pub fn hears(&self, id: TokenId, now: Timestamp) -> bool {
        !self.revoked.contains(&id)
            && self.token(id).is_some_and(|token| token.expires_at.is_none_or(|end| now < end))
    }

    /// Whether it may do everything by a token that is heard at this moment.
    pub fn owns(&self, now: Timestamp) -> bool {
        let mut tokens = self.tokens.iter();
        self.roles.contains(&Role::Owner) && tokens.any(|token| self.hears(token.token, now))
    }

    /// The same, where one token does not count.
    pub fn owns_without(&self, token: TokenId, now: Timestamp) -> bool {
        let mut others = self.tokens.iter().filter(|other| other.token != token);
        self.roles.contains(&Role::Owner) && others.any(|other| self.hears(other.token, now))
    }
}

impl Role {
    /// As it is written everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Owner => "owner",
            Role::Approver => "approver",
            Role::Auditor => "auditor",
            Role::Viewer => "viewer",
        }
    }
}

impl fmt::Display for PrincipalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PrincipalKind::Person => "person",
            PrincipalKind::Service => "service",
        })
    }
}
