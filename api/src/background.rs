//! Background loops of the server. A loop that consumes events owns one consumer row.
mod abreast;
pub mod answers;
pub mod checkpoints;
pub mod erasure;
pub mod evidence;
mod failures;
pub mod keys;
pub mod liveness;
pub mod log_days;
pub mod log_partitions;
pub mod parked;
#[cfg(feature = "planted")]
mod planted;
pub mod policies;
mod reactions;
pub mod supervise;
pub mod timers;
pub mod unhurried;
pub mod uploads;
pub mod verification;
