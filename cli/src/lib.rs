//! Commands of `stead` that call the Control API of a server, or need no server.
mod apps;
mod audit;
mod builds;
pub mod client;
pub mod failure;
mod installs;
mod jobs;
mod login;
mod pins;
pub mod plugins;
mod point_in_time;
mod projections;
pub mod render;
mod runners;
mod runs;
pub mod settings;
mod subjects;
mod templates;
mod tokens;
mod verbs;
mod webhooks;

pub use audit::keys::parse_trusted_keys;
pub use verbs::{ClientCommand, run};

#[cfg(test)]
mod goldens;
