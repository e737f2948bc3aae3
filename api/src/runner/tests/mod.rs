//! The Runner API as agents meet it: HTTP in, the log and Postgres behind it.
mod faults;
mod identity;
mod liveness;
mod logs;
mod parked;
mod race;
mod rekey;
mod results;
mod sessions;
mod signed;
mod strange;
mod strangers;
mod uploads;
mod work;
mod world;
