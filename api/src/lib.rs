//! The server: two APIs over one log.
//!
//! ```text
//! listen ─▶ router ─▶ auth (who calls, may they) ─▶ control · runner · artifacts ─▶ execute ─▶ the log
//!                                                     └─ problem: every refusal ◀─┘
//! ```

/// Archives of the log, as an operator asks for them.
pub mod archives;
/// The vendor's artifacts.
pub mod artifacts;
/// Who calls, and what they may do.
pub mod auth;
/// What goes on without being asked.
pub mod background;
/// Everything of a server that must come back, in one place.
pub mod backup;
/// From a step to a manifest.
pub mod compose;
/// The Control API: people and services.
pub mod control;
/// From a queued job to a waiting runner, and who is still there.
pub mod dispatch;
/// The OpenAPI documents and the page that shows them.
pub mod docs;
/// Every copy of what somebody's key no longer opens.
pub mod erasure;
/// The only writer.
pub mod execute;
/// What handlers take apart.
pub mod extract;
/// The server's signing keys.
pub mod keys;
/// The two doors.
pub mod listen;
/// What jobs wrote.
pub mod logs;
/// What is counted.
pub mod metrics;
/// Probes, metrics, key list.
pub mod ops;
/// A private Postgres, when nobody brought one.
pub mod postgres;
/// Every refusal of the two APIs.
pub mod problem;
/// What the domain refuses, as problems.
pub mod refusal;
/// Which routes are behind which door.
pub mod router;
/// The Runner API.
pub mod runner;
/// One server from start to stop.
pub mod server;
/// What every handler and every loop shares.
pub mod state;
/// What can be done.
pub mod usecases;
