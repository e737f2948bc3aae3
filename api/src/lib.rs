//! The server: two APIs over one log.
//!
//! ```text
//! listen ─▶ router ─▶ extract (authenticate, authorize) ─▶ control · runner · artifacts ─▶ execute ─▶ the log
//!                                                            └─ problem: error responses ◀─┘
//! ```

#![warn(unreachable_pub)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests create ids and start tasks themselves")
)]

pub mod archives;
mod artifacts;
mod auth;
pub mod backup;
mod changed_installs;
mod clock;
mod configs;
mod control;
mod dispatch;
mod docs;
mod erasure;
mod execute;
mod extract;
mod ids;
pub mod keys;
mod listen;
mod logs;
mod maintenance;
mod metrics;
mod ops;
pub mod postgres;
mod problem;
mod queries;
mod reach;
mod reactions;
mod recent_changes;
mod registry;
mod rejection;
mod render;
mod router;
mod runner;
mod sensitive;
pub mod server;
mod state;
mod state_versions;
mod tasks;
mod ui;
mod usecases;
mod webhooks;
mod wrapped_seeds;
mod write_behind;

// Public items for the other crates. Everything else in these modules is private to this crate.
pub use auth::OWNER_TOKEN;
pub use clock::system_clock;
pub use execute::Call;
pub use ids::new_ulid;
pub use listen::Certificate;
pub use logs::days as job_log_days;
pub use oci_registry::VendorLocation as RegistryLocation;
pub use reach::Reachable;
pub use reactions::policies::CONSUMER as POLICIES_CONSUMER;
pub use state::App;
pub use state_versions::DEFAULT_QUOTA as DEFAULT_STATE_QUOTA;
pub use usecases::{
    enrolments::issue as issue_enrolment_token, plugins::publish_packed as publish_plugin,
};
