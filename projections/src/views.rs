//! The projections: one per file, with its table and queries.

/// Jobs that a runner may claim.
pub mod job_queue;
/// Timeouts that are due or pending.
pub mod timers;

/// Enrolment tokens of runners.
pub mod enrolments;
/// Principals and their roles.
pub mod principals;
/// API tokens of principals.
pub mod tokens;

/// Apps.
pub mod apps;
/// Builds of components.
pub mod builds;
/// Components of apps.
pub mod components;
/// Config versions of apps.
pub mod config_versions;
/// Installs of apps.
pub mod installs;
/// Jobs of runs and builds.
pub mod jobs;
/// Runners of installs and builds.
pub mod runners;
/// Runs on installs.
pub mod runs;
/// Reasons why a job or a step waits.
pub mod waiting;
