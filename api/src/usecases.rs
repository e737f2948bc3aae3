//! Use cases, which load aggregates, handle commands and save the events.
pub(crate) mod access;
pub(crate) mod apps;
pub(crate) mod builds;
pub(crate) mod enrolments;
pub(crate) mod impact;
pub(crate) mod installs;
pub(crate) mod jobs;
pub(crate) mod journal_heads;
pub(crate) mod plugins;
mod preflight;
pub(crate) mod rebuild;
pub(crate) mod runners;
pub(crate) mod runs;
pub(crate) mod sources;
pub(crate) mod stack;
pub(crate) mod steps;
pub(crate) mod subjects;
mod toggles;
