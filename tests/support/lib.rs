//! Real programs, started as a person starts them: `stead up`, `stead …`, `stead-runner`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod example;
mod programs;
mod runner;
mod server;
mod wait;

pub use example::{edge_api, edge_api_v2};
pub use programs::{in_ci, program, stdout_of, terraform_or_skip};
pub use runner::Runner;
pub use server::Server;
pub use wait::{until, until_some};
