//! Validates a module before it is packed, with `init -backend=false` and `validate`. So broken HCL
//! fails the build and not the customer's plan.

use serde::Deserialize;

use super::{
    lock,
    tool::Tool,
    workspace::{LOCK_FILE, Workspace},
};
use crate::plugins::{
    contract::{PluginError, Sink, Stream},
    plugin::{Halt, Work},
    process::{self, ChildEnd},
};

/// Maximum number of errors in the build's result. The log has all of them.
const MAX_SHOWN_ERRORS: usize = 3;
/// Largest output of `validate -json` in bytes. The rest is dropped.
const OUTPUT_LIMIT: usize = 8 << 20;
/// Summary of the `validate` error for each module that a failed `init` could not fetch.
const NOT_INSTALLED: &str = "Module not installed";

#[derive(Deserialize)]
struct Validation {
    diagnostics: Vec<Diagnostic>,
}

#[derive(Deserialize)]
struct Diagnostic {
    severity: String,
    summary: String,
    #[serde(default)]
    detail: String,
    range: Option<Range>,
}

#[derive(Deserialize)]
struct Range {
    filename: String,
    start: Start,
}

#[derive(Deserialize)]
struct Start {
    line: u32,
}

impl Diagnostic {
    fn text(&self) -> String {
        let location = self.range.as_ref();
        let location = location.map(|at| format!("{}:{}: ", at.filename, at.start.line));
        let detail = self.detail.split_whitespace().collect::<Vec<_>>().join(" ");
        let detail = if detail.is_empty() { detail } else { format!(": {detail}") };
        format!("{}{}{detail}", location.unwrap_or_default(), self.summary)
    }
}

/// Validates a module. The failure names file and line of the first errors.
pub(super) async fn module(work: &Work<'_>, tool: &Tool, sink: &mut dyn Sink) -> Result<(), Halt> {
    let workspace = Workspace { work, tool, backend: None };
    let lock_file = work.source.join(LOCK_FILE);
    let had_lock = lock_file.exists();
    sink.phase("validate");
    let mut init = vec!["init".into(), "-backend=false".into(), "-input=false".into()];
    init.push("-no-color".into());
    init.extend(had_lock.then(|| "-lockfile=readonly".into()));
    let spec = workspace.spec(init);
    let ended = process::run(&spec, work, sink, |sink, stream, line| sink.line(stream, line)).await;
    let is_installed = match ended? {
        ChildEnd::Exit(code) => code == 0,
        other @ (ChildEnd::Signal(_) | ChildEnd::TimedOut) => {
            return Err(other.into_failure("init"));
        }
    };
    let found = diagnostics(&workspace, sink).await?;
    // Without providers and modules, only errors in the module's own files count.
    let is_error = |found: &&Diagnostic| {
        let is_of_the_module = found.range.is_some() && found.summary != NOT_INSTALLED;
        found.severity == "error" && (is_installed || is_of_the_module)
    };
    let errors: Vec<String> = found.iter().filter(is_error).map(Diagnostic::text).collect();
    for error in &errors {
        sink.line(Stream::Runner, error.as_bytes());
    }
    if !errors.is_empty() {
        let more = errors.len().saturating_sub(MAX_SHOWN_ERRORS);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        let shown = errors.iter().take(MAX_SHOWN_ERRORS).cloned().collect::<Vec<_>>().join("; ");
        return Err(Halt::exit(1, format!("the module is not valid: {shown}{more}")));
    }
    if !is_installed {
        let line = "only the module's own files are validated: init could not fetch its providers or modules";
        sink.line(Stream::Runner, line.as_bytes());
    }
    // A module without providers gets no lock file from `init`.
    match (had_lock, is_installed, lock_file.exists()) {
        (true, _, _) | (false, true, false) => Ok(()),
        (false, true, true) => lock::pin(&workspace, sink).await,
        (false, false, _) => lock::remove(&work.source, sink),
    }
}

async fn diagnostics(
    workspace: &Workspace<'_>,
    sink: &mut dyn Sink,
) -> Result<Vec<Diagnostic>, Halt> {
    let spec = workspace.spec(vec!["validate".into(), "-json".into(), "-no-color".into()]);
    let mut output = Vec::new();
    let ended = process::run(&spec, workspace.work, sink, |sink, stream, line| match stream {
        Stream::Out if output.len() + line.len() <= OUTPUT_LIMIT => output.extend_from_slice(line),
        Stream::Out => {}
        Stream::Err | Stream::Runner => sink.line(stream, line),
    });
    // After an error, `validate` exits with 1, and its output names the error.
    let ended = ended.await?;
    let validation: Validation = match (serde_json::from_slice(&output), ended) {
        (Ok(validation), ChildEnd::Exit(_)) => validation,
        (Err(error), ChildEnd::Exit(0)) => {
            let failed = format!("cannot read the output of validate: {error}");
            return Err(PluginError::PluginFailed(failed).into());
        }
        (Ok(_) | Err(_), other) => return Err(other.into_failure("validate")),
    };
    Ok(validation.diagnostics)
}
