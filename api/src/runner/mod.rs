//! The Runner API: what agents call, in the order of a runner's life.
//!
//! | module | call |
//! |---|---|
//! | [`enrol`], [`token`], [`rekey`] | who it is |
//! | [`session`] | one life of the agent's process, and what becomes of the work of the life before |
//! | [`poll`] | the one idle call |
//! | [`claim`] | take a job: manifest, grant and proofs |
//! | [`events`], [`log`], [`blob`] | what it says while it works |
//!
//! Every call may be repeated. A runner touches only jobs of its own install, and what belongs to an
//! execution is refused with 412 once another one, or nobody, has the job.
use axum::extract::DefaultBodyLimit;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{logs::CHUNK_MAX_BYTES, state::App};

pub mod blob;
mod caller;
pub mod claim;
pub mod enrol;
pub mod events;
mod execution;
mod finish;
mod grant;
pub mod journal;
pub mod log;
pub mod poll;
mod refusals;
pub mod rekey;
mod resume;
pub mod session;
mod settle;
mod strange;
#[cfg(test)]
mod tests;
pub mod token;

pub use finish::seal_incomplete;

/// Compression never makes a chunk much longer than it is.
const CHUNK_BODY_BYTES: usize = CHUNK_MAX_BYTES + 4096;

/// All routes of the Runner API.
pub fn routes() -> OpenApiRouter<App> {
    let calls = OpenApiRouter::new()
        .routes(routes!(enrol::enrol))
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
    calls.merge(chunks).merge(blobs)
}
