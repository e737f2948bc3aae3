//! Runner API, in the order in which an agent calls it.
//!
//! | module | call |
//! |---|---|
//! | [`enrol`], [`token`], [`rekey`] | identity of a runner |
//! | [`recovery`] | keys of an install on a new host |
//! | [`session`] | session of an agent process, and recovery of the executions of the previous session |
//! | [`poll`] | long poll |
//! | [`claim`] | claim a job: manifest, grant and proofs |
//! | [`events`], [`log`], [`blob`] | reports, log chunks and uploads of an execution |
//! | [`state`] | encrypted state of a component |
//!
//! Every call can be repeated. A runner can access only jobs of its own install, and a build runner
//! only builds. Reports of an execution that lost its job are rejected with 412.
use axum::extract::DefaultBodyLimit;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{logs::CHUNK_MAX_BYTES, state::App};

mod anomalies;
pub(crate) mod blob;
mod caller;
pub(crate) mod claim;
mod customer_values;
pub(crate) mod enrol;
pub(crate) mod events;
mod execution;
mod finalize;
mod grant;
mod install_keys;
pub(crate) mod log;
pub(crate) mod poll;
mod reconnect;
pub(crate) mod recovery;
pub(crate) mod rekey;
mod resume;
pub(crate) mod session;
pub(crate) mod state;
#[cfg(test)]
mod tests;
pub(crate) mod token;

/// Maximum size in bytes of the body of a chunk. Compression can slightly enlarge an incompressible
/// chunk.
const CHUNK_BODY_BYTES: usize = CHUNK_MAX_BYTES + 4096;

pub(crate) fn routes() -> OpenApiRouter<App> {
    let calls = OpenApiRouter::new()
        .routes(routes!(enrol::enrol))
        .routes(routes!(recovery::offer))
        .routes(routes!(token::token))
        .routes(routes!(rekey::rekey))
        .routes(routes!(session::open))
        .routes(routes!(session::close))
        .routes(routes!(poll::poll))
        .routes(routes!(claim::claim))
        .routes(routes!(events::report));
    let chunks = OpenApiRouter::new()
        .routes(routes!(log::append))
        .layer(DefaultBodyLimit::max(CHUNK_BODY_BYTES));
    let blobs = OpenApiRouter::new()
        .routes(routes!(blob::put))
        .layer(DefaultBodyLimit::max(blob::MAX_BYTES));
    let states = OpenApiRouter::new()
        .routes(routes!(state::put, state::get))
        // The handler limits the size, because it knows the limit as u64.
        .layer(DefaultBodyLimit::disable());
    calls.merge(chunks).merge(blobs).merge(states)
}
