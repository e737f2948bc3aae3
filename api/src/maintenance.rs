//! Periodic maintenance of the log, the database and the keys.
pub mod checkpoints;
pub mod keys;
pub mod log_days;
pub mod log_partitions;
pub mod uploads;
pub mod verification;
