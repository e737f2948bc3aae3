//! Copies of the repository's example apps that a test may change.
use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::stdout_of;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

/// Copies `examples/edge-api` to a directory.
pub fn edge_api(into: &Path) -> PathBuf {
    let copy = into.join("edge-api");
    stdout_of(Command::new("cp").arg("-R").arg(examples().join("edge-api")).arg(&copy));
    copy
}

/// Writes version 2 of `examples/edge-api` to a directory. One module and the default of one input
/// differ from version 1.
pub fn edge_api_v2(into: &Path) -> PathBuf {
    let copy = into.join("v2").join("edge-api");
    stdout_of(Command::new("sh").arg(examples().join("edge-api/version-2")).arg(&copy));
    copy
}

/// Copies `examples/kubernetes`, whose components belong to the plugin `kubernetes_manifest`.
pub fn kubernetes_app(into: &Path) -> PathBuf {
    let copy = into.join("kubernetes");
    stdout_of(Command::new("cp").arg("-R").arg(examples().join("kubernetes")).arg(&copy));
    copy
}

/// Writes version 2 of `examples/kubernetes` to a directory.
pub fn kubernetes_app_v2(into: &Path) -> PathBuf {
    let copy = into.join("v2").join("kubernetes");
    stdout_of(Command::new("sh").arg(examples().join("kubernetes/version-2")).arg(&copy));
    copy
}

/// Copies `examples/helm`, whose components belong to the plugin `helm_chart`.
pub fn helm_app(into: &Path) -> PathBuf {
    let copy = into.join("helm");
    stdout_of(Command::new("cp").arg("-R").arg(examples().join("helm")).arg(&copy));
    copy
}

/// Writes version 2 of `examples/helm` to a directory.
pub fn helm_app_v2(into: &Path) -> PathBuf {
    let copy = into.join("v2").join("helm");
    stdout_of(Command::new("sh").arg(examples().join("helm/version-2")).arg(&copy));
    copy
}

/// Copies `examples/notes-files`, whose components belong to the vendor's plugin `files`.
pub fn notes_files(into: &Path) -> PathBuf {
    let copy = into.join("notes-files");
    stdout_of(Command::new("cp").arg("-R").arg(examples().join("notes-files")).arg(&copy));
    copy
}

/// Writes version 2 of `examples/notes-files` to a directory.
pub fn notes_files_v2(into: &Path) -> PathBuf {
    let copy = into.join("v2").join("notes-files");
    stdout_of(Command::new("sh").arg(examples().join("notes-files/version-2")).arg(&copy));
    copy
}
