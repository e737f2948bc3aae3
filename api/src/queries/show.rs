//! Converts projection rows to the wire format.
mod app;
mod build;
mod diagnostic;
mod diff;
mod install;
mod job;
mod run;
mod runner;

pub(crate) use app::{app, version};
pub(crate) use build::build;
pub(crate) use diagnostic::diagnostic;
pub(crate) use diff::{diff, with_commits, with_files, with_impact};
pub(crate) use install::{enrolment, ignored_settings, ignored_settings_of, install};
pub(crate) use job::job;
pub(crate) use run::{run, summary};
pub(crate) use runner::runner;

use projections::views::waiting::Waiting as Row;
use schemas::control::Waiting;
use serde::Serialize;
use serde_json::Value;

/// Returns the serialized name of a unit variant, as in events.
fn variant_name(of: &impl Serialize) -> String {
    match serde_json::to_value(of) {
        Ok(Value::String(name)) => name,
        Ok(_) | Err(_) => String::new(),
    }
}

fn waiting(row: Row) -> Waiting {
    let Row { on, detail, job, run, install, runner } = row;
    Waiting { on: on.into(), detail, job, run, install, runner }
}
