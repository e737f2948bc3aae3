//! Reads an app directory. Converts a tree of bytes to a typed config with findings, finds the
//! values that its templates read, and compares two configs.
//!
//! ```text
//!   bytes ── tree ──▶ read ──▶ AppConfig ──┬─▶ refs      references, dependencies and deploy order
//!                       │                  ├─▶ diff      changes and their reasons
//!                       │                  ├─▶ inspect   description as one JSON object
//!                       ▼                  ├─▶ inputs    input values of an install
//!                   diagnostics            └─▶ template  text + install state → text
//! ```
//!
//! This crate opens no file, reads no clock and calls no network. The same bytes give the same
//! result on the vendor's machine and on the server.
pub mod diagnostic;
pub mod diff;
pub mod inputs;
pub mod inspect;
pub mod model;
pub mod modules;
pub mod read;
pub mod refs;
pub mod schema;
pub mod template;
pub mod text;
pub mod tree;

mod document;
mod graph;

pub use self::{
    diagnostic::{Diagnostic, Severity},
    diff::{Change, Difference, diff},
    inputs::{InputProblem, accepts, awaited_inputs, choose_inputs, resolve_inputs},
    inspect::inspect,
    model::AppConfig,
    read::{Reading, read, read_with, remote_path, survey, unpinned_plugin_types},
    refs::{Graph, Reads, graph},
    schema::{SCHEMAS, schema},
    template::{TemplateError, render, render_tree},
    text::{Origin, Span, Spans, Text},
    tree::{File, Limits, Tree, TreeError},
};
