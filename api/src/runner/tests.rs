//! Tests of the Runner API over HTTP, with a real event log and database.
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
