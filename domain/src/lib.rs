//! Rules of Stead as pure functions: aggregates, planning and policies. The rules have no I/O,
//! clock, id generation or async code.
pub mod access;
pub mod actor;
pub mod app;
pub mod artifact;
pub mod build;
pub mod check;
pub mod component;
pub mod decider;
pub mod digest;
pub mod enrolment;
pub mod environment;
pub mod erasure;
pub mod git;
pub mod go_text;
pub mod history;
pub mod ids;
pub mod image;
pub mod install;
pub mod isolation;
pub mod job;
pub mod moment;
pub mod name;
pub mod outputs;
pub mod plugin;
pub mod policy;
pub mod recorded;
pub mod run;
pub mod runner;
#[cfg(test)]
mod schema;
pub mod secret;
pub mod state_version;
pub mod stream;
pub mod subject;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod upcast;
pub mod webhook;
