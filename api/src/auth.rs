//! Principals, tokens and roles. `extract` authenticates and authorizes requests with them.
//!
//! ```text
//! Control API   Bearer stead_…        users and services   cache of principals, fed by the log ─▶ Caller
//! Runner API    Bearer <JWT>          runners              signature, set of revoked runners   ─▶ RunnerCaller
//! /v2, blobs    Bearer or Basic JWT   one execution        signature                           ─▶ JobCaller
//! ```
//!
//! The log has only the SHA-256 of a `stead_…` token. The token has 256 random bits.
mod assertion;
mod bootstrap;
pub(crate) mod names;
#[cfg(test)]
mod pentest;
mod principals;
pub(crate) mod roles;
pub(crate) mod secret;
pub(crate) mod sessions;
mod tokens;

pub use self::bootstrap::OWNER_TOKEN;
pub(crate) use self::{
    assertion::Assertions,
    bootstrap::{BootstrapError, create_another_owner, create_first_owner},
    principals::{Identity, PrincipalCache},
    tokens::{ACCESS_SECONDS, Tokens},
};
