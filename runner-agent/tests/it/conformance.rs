//! One scenario for every plugin that plans and applies: what an approval is worth must not depend on who
//! wrote the plugin. The scenario is in `conformance/scenario.rs`; what is peculiar to one is beside it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod actions;
mod external;
mod full_disk;
mod older_state;
mod room;
mod scenario;
mod subjects;
mod terraform;
