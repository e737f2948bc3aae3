//! The rules of Stead. No I/O, no clock, no async.
pub mod actor;
pub mod decider;
pub mod digest;
pub mod ids;
pub mod install;
pub mod run;
