//! From a step to a manifest: load bundle and state, render, resolve digests, sign. The only place
//! that does.
pub mod build;
pub mod config;
pub mod manifest;
pub mod state;
pub mod step;
pub mod toggles;
pub mod wanted;
