//! The next version of this program, as far as a test needs one to roll to: the same with another format.

/// Environment variable that makes a process the next version.
const VARIABLE: &str = "STEAD_NEXT_FORMAT";

pub(super) const FORMAT: i32 = super::FORMAT + 1;
pub(super) const MIGRATION: (&str, &str) =
    ("9999_next.sql", "update log_head set format = format + 1");

pub(super) fn is() -> bool {
    std::env::var_os(VARIABLE).is_some()
}
