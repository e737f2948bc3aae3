//! Renders manifests: loads the bundle and the state, renders templates and resolves digests.
pub(crate) mod build;
pub(crate) mod desired;
pub(crate) mod manifest;
mod plugin;
pub(crate) mod preflight;
pub(crate) mod resolve;
pub(crate) mod state;
pub(crate) mod step;
pub(crate) mod toggles;
