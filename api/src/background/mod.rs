//! What goes on without being asked: each loop owns a consumer row or nothing at all.
pub mod liveness;
pub mod policies;
pub mod timers;
