//! Background loops of the server. A loop that consumes events owns one consumer row.
pub mod checkpoints;
mod concurrent;
pub mod dead_letters;
pub mod erasure;
mod failures;
pub mod keys;
pub mod liveness;
pub mod log_days;
pub mod log_partitions;
#[cfg(feature = "planted")]
mod planted;
pub mod policies;
pub mod principals;
mod reactions;
pub mod supervise;
pub mod timers;
pub mod uploads;
pub mod verification;
