//! Reactions to events and to elapsed time. A loop that processes events owns one consumer row.
mod commit;
mod concurrent;
pub mod dead_letters;
pub mod erasure;
mod failures;
#[cfg(feature = "fault-injection")]
mod fault_injection;
pub mod liveness;
pub mod policies;
pub mod principals;
pub mod timers;
