//! The server: two APIs over one log.
//!
//! ```text
//! listen ─▶ router ─▶ extract (authenticate, authorize) ─▶ control · runner · artifacts ─▶ execute ─▶ the log
//!                                                            └─ problem: error responses ◀─┘
//! ```

/// Operator commands for archives of the log.
pub mod archives;
/// Endpoint of the registry for runners.
pub mod artifacts;
/// Principals, tokens and roles.
pub mod auth;
/// Backup and restore.
pub mod backup;
/// Installs that changed in ranges of the log.
pub mod changed_installs;
/// Source of the time.
pub mod clock;
/// Parsed configs of published bundles.
pub mod configs;
/// Control API for users and services.
pub mod control;
/// Dispatch of queued jobs to runners, and contact with runners.
pub mod dispatch;
/// OpenAPI documents and their HTML page.
pub mod docs;
/// Erasure of copies after crypto-shredding.
pub mod erasure;
/// The only writer of the log.
pub mod execute;
/// Request extractors, and authentication of callers.
pub mod extract;
/// Signing keys of the server.
pub mod keys;
/// Network listeners.
pub mod listen;
/// Logs of jobs.
pub mod logs;
/// Periodic maintenance of the log, the database and the keys.
pub mod maintenance;
/// Metrics.
pub mod metrics;
/// Probes, metrics and key list.
pub mod ops;
/// Private Postgres for installations without an external database.
pub mod postgres;
/// Error responses of both APIs.
pub mod problem;
/// Responses of the Control API.
pub mod queries;
/// Reactions to events and to elapsed time.
pub mod reactions;
/// Conversion of domain errors to problems.
pub mod refusal;
/// Storage of the vendor's artifacts.
pub mod registry;
/// Rendering of manifests.
pub mod render;
/// Routes of each listener.
pub mod router;
/// Runner API.
pub mod runner;
/// Lifecycle of one server.
pub mod server;
/// Shared state of all handlers and loops.
pub mod state;
/// State of background tasks.
pub mod tasks;
/// Use cases.
pub mod usecases;
/// Batched writes of data that can be reproduced.
pub mod write_behind;
