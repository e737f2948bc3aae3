//! Library of the CLI: the client of the Control API, for tests of other crates.

pub mod client;
