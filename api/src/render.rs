//! Renders manifests: loads the bundle and the state, renders templates and resolves digests.
pub mod build;
pub mod desired;
pub mod manifest;
pub mod state;
pub mod step;
pub mod toggles;
