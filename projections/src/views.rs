//! The projections: one per file, with its table and queries.

pub mod job_queue;
pub mod timers;

pub mod enrolments;
pub mod principals;
pub mod tokens;

pub mod apps;
pub mod builds;
pub mod components;
pub mod config_versions;
pub mod installs;
pub mod jobs;
pub mod plugins;
pub mod runners;
pub mod runs;
pub mod waiting;
pub mod webhooks;
