//! Who calls, and what they may do.
//!
//! ```text
//! Control API   Bearer stead_…      people and services   People: memory, fed by the log   ─▶ Who
//! Runner API    Bearer <JWT>        runners               a signature and a set            ─▶ Runner
//! /v2, blobs    Bearer or Basic JWT one execution         a signature                      ─▶ JobCall
//! ```
//!
//! No token is kept anywhere in clear: the log has the SHA-256 of 256 random bits, which nobody guesses.
mod assertion;
mod bootstrap;
mod callers;
mod follow;
mod guard;
pub mod names;
#[cfg(test)]
mod pentest;
mod people;
pub mod roles;
pub mod secret;
mod tokens;

pub use self::{
    assertion::Assertions,
    bootstrap::{BootstrapError, OWNER_TOKEN, another_owner, owner},
    callers::{JobCall, Runner},
    follow::follow,
    guard::{Who, guard},
    people::{Identity, People, require_current},
    roles::Needs,
    tokens::{ACCESS_SECONDS, Tokens},
};
