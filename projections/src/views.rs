//! The views: one fold per file, with its table and its questions.

/// Jobs that a runner may take now.
pub mod job_queue;
/// Moments at which something has to be done.
pub mod timers;

/// Tokens that let a runner in.
pub mod enrolments;
/// What principals may do.
pub mod principals;
/// Tokens that speak for principals.
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
/// Why something waits.
pub mod waiting;
