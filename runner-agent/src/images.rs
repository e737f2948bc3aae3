//! Container images: reads them from registries, and copies them by digest.
//!
//! ```text
//! build  upstream registry or its mirror ──resolve──▶ tree ──copy──▶ server's registry
//! sync   server's registry ─────────────────fetch──▶ tree ──copy──▶ registry of the install, or Layout
//! ```
//!
//! A tree has the manifests of the needed platforms, and the blobs that they name. A copy sends each
//! blob once, four at a time. It resumes a broken download at its offset, and a broken upload where the
//! registry allows it. The runner verifies every digest. Registries get credentials only on their own
//! origin, never after a redirect to another one.

mod auth;
mod blob;
mod copy;
mod endpoint;
mod error;
mod retry;
mod settings;
#[cfg(test)]
mod tests;
mod tree;
mod upload;

pub(crate) use self::{
    copy::{Progress, Source, Target, copy},
    endpoint::Endpoint,
    error::RegistryError,
    tree::{Tree, fetch, resolve},
};
pub use settings::ImageSettings;
pub(crate) use settings::{
    InstallRegistry, Mirror, RegistryChoice, parse_mirror, parse_registry, record_registry,
};
