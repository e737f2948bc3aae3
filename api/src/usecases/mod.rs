//! What can be done: load, tell, save. Handlers and policies call these and nothing else writes.
pub mod access;
pub mod apps;
pub mod builds;
pub mod enrolments;
pub mod installs;
pub mod jobs;
pub mod reach;
pub mod rebuild;
pub mod runners;
pub mod runs;
pub mod stack;
pub mod steps;
pub mod subjects;
mod toggles;
