//! Simulates the next version of this program for tests of rolling updates: the same program with
//! another format.

/// Environment variable that gives a process another format, as in the next version.
const VARIABLE: &str = "STEAD_NEXT_FORMAT";

pub(super) const FORMAT: i32 = super::FORMAT + 1;
pub(super) const MIGRATION: (&str, &str) =
    ("9999_next.sql", "update log_head set format = format + 1");

pub(super) fn is_enabled() -> bool {
    std::env::var_os(VARIABLE).is_some()
}
