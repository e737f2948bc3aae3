//! Library of the CLI: the client of the Control API, for tests of other crates.

/// Client of the Control API.
pub mod client;
