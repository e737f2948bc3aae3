//! One scenario for every plugin that plans and applies, because an approval must mean the same
//! with each plugin. `conformance/scenario.rs` has the scenario. The other files test properties of
//! one plugin.

mod actions;
mod backend;
mod cluster_subjects;
mod external;
mod full_disk;
mod older_state;
mod open_state;
mod preflight;
mod published;
mod resolve_state;
mod scenario;
mod state_hosts;
mod state_server;
mod subjects;
mod terraform;
mod test_runner;
mod vendor;
