//! Periodic maintenance of the log, the database, the keys and the artifacts.
pub(crate) mod artifacts;
pub(crate) mod checkpoints;
pub(crate) mod keys;
pub(crate) mod log_days;
pub(crate) mod log_partitions;
pub(crate) mod sensitive_values;
pub(crate) mod uploads;
pub(crate) mod verification;
