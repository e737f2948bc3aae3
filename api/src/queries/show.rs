//! Converts projection rows to the wire format.
mod app;
mod build;
mod diagnostic;
mod diff;
mod install;
mod job;
mod run;
mod runner;

pub use app::{app, version};
pub use build::build;
pub use diagnostic::diagnostic;
pub use diff::{diff, with_impact};
pub use install::{enrolment, ignored_settings, ignored_settings_of, install};
pub use job::job;
pub use run::{run, summary};
pub use runner::runner;

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
