//! State of a principal's access, folded from its events.
use std::{collections::BTreeSet, fmt};

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::{decider::Timestamp, digest::Digest, ids::TokenId};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct Access {
    /// Kind of the principal. `None` before the principal is added.
    pub kind: Option<PrincipalKind>,
    pub roles: BTreeSet<Role>,
    /// All issued tokens, including revoked ones.
    pub tokens: Vec<IssuedToken>,
    pub revoked: BTreeSet<TokenId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PrincipalKind {
    /// Human user of the vendor.
    Person,
    /// Program of the vendor.
    Service,
}

/// Role of a principal. A principal with several roles has the permissions of all of them.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Encode, Decode,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// All permissions.
    Owner,
    /// Permissions of a viewer, and approval or denial of plans.
    Approver,
    /// Permissions of a viewer, and read access to the log, its proofs, blobs, projections and data
    /// subjects.
    Auditor,
    /// Read access to apps, installs, builds, runs, jobs and runners.
    Viewer,
}

/// API token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IssuedToken {
    /// Id of the token, which is not secret.
    pub token: TokenId,
    /// Digest of the token's secret.
    pub sha256: Digest,
    /// Time from which the token is invalid. Absent if the token does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::moment::optional")]
    #[cfg_attr(test, schemars(with = "Option<Timestamp>"))]
    #[bincode(with_serde)]
    pub expires_at: Option<Timestamp>,
}

impl Access {
    /// Returns the token with this id, revoked or not.
    pub fn token(&self, id: TokenId) -> Option<&IssuedToken> {
        self.tokens.iter().find(|token| token.token == id)
    }

    /// Returns true if the token is valid at this time: issued, not revoked and not expired.
    pub fn is_token_valid(&self, id: TokenId, now: Timestamp) -> bool {
        !self.revoked.contains(&id)
            && self.token(id).is_some_and(|token| token.expires_at.is_none_or(|end| now < end))
    }

    /// Returns true if the principal is an owner with a valid token at this time.
    pub fn is_owner(&self, now: Timestamp) -> bool {
        let mut tokens = self.tokens.iter();
        self.roles.contains(&Role::Owner)
            && tokens.any(|token| self.is_token_valid(token.token, now))
    }

    /// Returns true if the principal is an owner with a valid token other than `token` at this
    /// time.
    pub fn is_owner_without(&self, token: TokenId, now: Timestamp) -> bool {
        let mut others = self.tokens.iter().filter(|other| other.token != token);
        self.roles.contains(&Role::Owner)
            && others.any(|other| self.is_token_valid(other.token, now))
    }
}

impl Role {
    /// Returns the name of the role in events and in the APIs.
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
