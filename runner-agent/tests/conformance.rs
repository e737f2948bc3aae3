//! One scenario for every plugin that plans and applies: what an approval is worth must not depend on who
//! wrote the plugin. The scenario is in `conformance/scenario.rs`; what is peculiar to one is beside it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

#[path = "conformance/actions.rs"]
mod actions;
#[path = "conformance/external.rs"]
mod external;
#[path = "conformance/full_disk.rs"]
mod full_disk;
#[path = "conformance/older_state.rs"]
mod older_state;
#[path = "conformance/room.rs"]
mod room;
#[path = "conformance/scenario.rs"]
mod scenario;
#[path = "conformance/subjects.rs"]
mod subjects;
#[path = "conformance/terraform.rs"]
mod terraform;
