//! Responses of the Control API, as functions that every front end calls. A function takes the
//! caller and typed arguments. It authorizes the caller, reads, and returns the response type of
//! `schemas`. A handler in `control` only parses the request and sends the response.
//!
//! The function authorizes by the route that has the same response, so `auth::roles` is the only
//! table of required roles. Before a read, a front end calls [`min_position::wait`].
//!
//! | route (GET) | function | response |
//! |---|---|---|
//! | `/v1/whoami` | `tokens::whoami` | `Whoami` |
//! | `/v1/apps`, `/v1/apps/{app}` | `apps::list`, `apps::get` | `Page<App>`, `App` |
//! | `/v1/apps/{app}/versions`, `…/versions/{version}` | `apps::versions`, `apps::version` | `Page<ConfigVersion>`, `ConfigVersionDetail` |
//! | `/v1/apps/{app}/diff` | `apps::diff` | `Diff` |
//! | `/v1/builds`, `/v1/builds/{build}` | `builds::list`, `builds::get` | `Page<Build>`, `Build` |
//! | `/v1/installs`, `/v1/installs/{install}` | `installs::list`, `installs::get` | `Page<Install>`, `Install` |
//! | `/v1/installs/{install}/sensitive-inputs` | `installs::sensitive_inputs` | `SensitiveInputs` |
//! | `/v1/installs/{install}/state` | `installs::state` | `InstallState` |
//! | `/v1/runs`, `/v1/runs/{run}` | `runs::list`, `runs::get` | `Page<RunSummary>`, `Run` |
//! | `/v1/runs/{run}/steps/{step}/plan` | `runs::plan` | JSON of the plan summary |
//! | `/v1/jobs`, `/v1/jobs/{job}` | `jobs::list`, `jobs::get` | `Page<Job>`, `Job` |
//! | `/v1/jobs/{job}/attempts/{attempt}/log` | `logs::get`, `logs::follow` | `AttemptLog` with bytes, stream of `LogUpdate` |
//! | `/v1/runners`, `/v1/runners/{runner}` | `runners::list`, `runners::get` | `Page<Runner>`, `Runner` |
//! | `/v1/runners/{runner}/journal-heads` | `runners::journal_heads` | `JournalHeads` |
//! | `/v1/enrolment-tokens` | `enrolments::list` | `Page<EnrolmentToken>` |
//! | `/v1/plugins`, `/v1/plugins/{plugin}` | `plugins::list`, `plugins::get` | `Page<Plugin>`, `Plugin` |
//! | `/v1/tokens` | `tokens::list` | `Page<Token>` |
//! | `/v1/subjects/{subject}` | `subjects::get` | `Subject` |
//! | `/v1/projections`, `/v1/projections/{name}/rows` | `projections::list`, `projections::rows` | `Page<Projection>`, stream of `RowsProgress` |
//! | `/v1/changes` | `changes::follow` | stream of `EventNotification` |
//! | `/v1/installs`, `/v1/runs` | `overview::versions`, `overview::run_days` | counts for the home page of the dashboard |
//! | `/v1/installs`, `/v1/apps` | `find::installs`, `find::apps` | names for the palette of the dashboard |
//! | `/v1/blobs/{digest}` | `blobs::get` | bytes |
//! | `/v1/audit/events` | `audit::events` | `Events` |
//! | `/v1/audit/state` | `audit::state` | `AsOf` |
//! | `/v1/audit/diff`, `/v1/audit/diff/installs` | `audit::diff`, `audit::installs_diff` | `StreamDiff`, `InstallsDiff` |
//! | `/v1/audit/checkpoint`, `/v1/audit/proofs` | `audit::checkpoint`, `audit::proofs` | `Checkpoint`, `Proof` |
//! | `/v1/audit/export`, `/v1/audit/range`, `/v1/audit/bundle` | `audit::export`, `audit::range`, `audit::bundle` | stream of bytes |
pub(crate) mod apps;
pub(crate) mod audit;
pub(crate) mod blobs;
pub(crate) mod builds;
pub(crate) mod changes;
pub(crate) mod earlier_change;
pub(crate) mod enrolments;
mod filter;
pub(crate) mod find;
pub(crate) mod installs;
pub(crate) mod jobs;
pub(crate) mod logs;
mod lookup;
pub(crate) mod min_position;
pub(crate) mod overview;
mod pagination;
pub(crate) mod plugins;
pub(crate) mod projections;
pub(crate) mod runners;
pub(crate) mod runs;
pub(crate) mod show;
pub(crate) mod subjects;
pub(crate) mod tokens;
pub(crate) mod webhooks;

#[cfg(test)]
mod tests;
