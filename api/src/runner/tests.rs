//! Tests of the Runner API over HTTP, with a real event log and database.
mod anomalies;
mod concurrent_claims;
mod faults;
mod identity;
mod isolation;
mod liveness;
mod logs;
mod long_polls;
mod plan_details;
mod rekey;
mod results;
mod sessions;
mod statements;
mod states;
mod uploads;
mod work;
mod world;
