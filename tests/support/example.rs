//! The example apps of the repository, copied to where a test may change them.
use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::stdout_of;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

/// A copy of `examples/edge-api` in a directory.
pub fn edge_api(into: &Path) -> PathBuf {
    let copy = into.join("edge-api");
    stdout_of(Command::new("cp").arg("-R").arg(examples().join("edge-api")).arg(&copy));
    copy
}

/// Its version 2: one module and one input's default are other.
pub fn edge_api_v2(into: &Path) -> PathBuf {
    let copy = into.join("v2").join("edge-api");
    stdout_of(Command::new("sh").arg(examples().join("edge-api/version-2")).arg(&copy));
    copy
}

/// A copy of `examples/notes-files`, whose components belong to the vendor's plugin `files`.
pub fn notes_files(into: &Path) -> PathBuf {
    let copy = into.join("notes-files");
    stdout_of(Command::new("cp").arg("-R").arg(examples().join("notes-files")).arg(&copy));
    copy
}

/// Its version 2.
pub fn notes_files_v2(into: &Path) -> PathBuf {
    let copy = into.join("v2").join("notes-files");
    stdout_of(Command::new("sh").arg(examples().join("notes-files/version-2")).arg(&copy));
    copy
}
