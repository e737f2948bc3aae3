//! From what a thing is to what the wire says of it. No decision is made here, only words are found.
mod app;
mod build;
mod diff;
mod install;
mod job;
mod run;
mod runner;
mod waiting;

pub use app::{app, version};
pub use build::build;
pub use diff::diff;
pub use install::{enrolment, install};
pub use job::job;
pub use run::{run, summary};
pub use runner::runner;

use serde::Serialize;
use serde_json::Value;

/// The word of a closed set, as events write it.
fn word(of: &impl Serialize) -> String {
    match serde_json::to_value(of) {
        Ok(Value::String(word)) => word,
        Ok(Value::Object(tagged)) => {
            tagged.get("type").and_then(Value::as_str).unwrap_or_default().to_owned()
        }
        Ok(_) | Err(_) => String::new(),
    }
}
