//! Use cases, which load aggregates, handle commands and save the events.
pub mod access;
pub mod apps;
pub mod builds;
pub mod enrolments;
pub mod impact;
pub mod installs;
pub mod jobs;
pub mod journal_heads;
pub mod rebuild;
pub mod runners;
pub mod runs;
pub mod stack;
pub mod steps;
pub mod subjects;
mod toggles;
