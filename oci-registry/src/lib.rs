//! Client of OCI registries: reads artifacts from registries, and copies them by digest.
//!
//! ```text
//! Endpoint ──resolve or fetch──▶ Tree ──copy──▶ Endpoint or Layout
//! Layout   ─────────────────────────────copy──▶ Endpoint
//! ```
//!
//! A tree has the manifests of the needed platforms, and the blobs that they name. A copy sends each
//! blob once, four at a time. It resumes a broken download at its offset, and a broken upload where the
//! registry allows it. The client verifies every digest. Registries get credentials only on their own
//! origin, never after a redirect to another one.

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests create ids and start tasks themselves")
)]

mod auth;
mod blob;
mod copy;
mod document;
mod endpoint;
mod error;
mod location;
mod reader;
mod response;
mod retry;
#[cfg(test)]
mod tests;
mod tree;
mod upload;

pub use self::{
    blob::BlobReader,
    copy::{Progress, Source, Target, copy},
    document::Received,
    endpoint::{Endpoint, Referred, client},
    error::RegistryError,
    location::{Location, VendorLocation},
    response::problem_text,
    retry::Observer,
    tree::{Tree, TreeDocument, fetch, resolve},
};
