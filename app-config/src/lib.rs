//! An app directory, read: from a tree of bytes to a typed config, what is wrong with it and where,
//! what its templates read, and what changed since the version before.
//!
//! ```text
//!   bytes ── tree ──▶ read ──▶ AppConfig ──┬─▶ refs      who reads whom, and in which order
//!                       │                  ├─▶ diff      what changed, and why
//!                       │                  ├─▶ inspect   the whole of it as one JSON object
//!                       ▼                  ├─▶ inputs    what an install was given
//!                   diagnostics            └─▶ template  text + install state → text
//! ```
//!
//! Nothing here opens a file, asks the time or calls the network: the same bytes give the same
//! answer on the vendor's laptop and in the server.
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
    inputs::{InputProblem, choose_inputs, resolve_inputs},
    inspect::inspect,
    model::AppConfig,
    read::{Reading, read, remote_path, survey},
    refs::{Graph, Reads, graph},
    schema::{SCHEMAS, schema},
    template::{TemplateError, render, render_tree},
    text::{Origin, Span, Spans, Text},
    tree::{File, Limits, Tree, TreeError},
};
