//! The server: two APIs over one log.
//!
//! ```text
//! listen ─▶ router ─▶ extract (authenticate, authorize) ─▶ control · runner · artifacts ─▶ execute ─▶ the log
//!                                                            └─ problem: error responses ◀─┘
//! ```

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests create ids and start tasks themselves")
)]

pub mod archives;
pub mod artifacts;
pub mod auth;
pub mod backup;
pub mod changed_installs;
pub mod clock;
pub mod configs;
pub mod control;
pub mod dispatch;
pub mod docs;
pub mod erasure;
pub mod execute;
pub mod extract;
/// Source of ids.
pub mod ids;
pub mod keys;
pub mod listen;
pub mod logs;
pub mod maintenance;
pub mod metrics;
pub mod ops;
pub mod postgres;
pub mod problem;
pub mod queries;
pub mod reactions;
pub mod refusal;
pub mod registry;
pub mod render;
pub mod router;
pub mod runner;
pub mod server;
pub mod state;
pub mod tasks;
pub mod usecases;
pub mod write_behind;
