//! The server: two APIs over one log.
//!
//! ```text
//! listen ─▶ router ─▶ auth (who calls, may they) ─▶ control · runner · artifacts ─▶ execute ─▶ the log
//!                                                     └─ problem: every refusal ◀─┘
//! ```

/// Who calls, and what they may do.
pub mod auth;
/// The OpenAPI documents and the page that shows them.
pub mod docs;
/// What handlers take apart.
pub mod extract;
/// The server's signing keys.
pub mod keys;
/// The two doors.
pub mod listen;
/// What is counted.
pub mod metrics;
/// Probes, metrics, key list.
pub mod ops;
/// A private Postgres, when nobody brought one.
pub mod postgres;
/// Every refusal of the two APIs.
pub mod problem;
/// Which routes are behind which door.
pub mod router;
/// What every handler and every loop shares.
pub mod state;
