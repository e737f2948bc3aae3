//! Files that belong to no kind of the format.
use super::reader::Reader;
use crate::{
    diagnostic::{Severity, nearest},
    tree::Tree,
};

/// Files of the format at the root of the directory.
const FILES: [&str; 14] = [
    "metadata.toml",
    "inputs.toml",
    "sandbox.toml",
    "runner.toml",
    "stack.toml",
    "permissions.toml",
    "policies.toml",
    "secrets.toml",
    "break_glass.toml",
    "operation_roles.toml",
    "kubernetes_contexts.toml",
    "installs.toml",
    "branch.toml",
    "installer.toml",
];

const DIRECTORIES: [&str; 11] = [
    "actions",
    "branches",
    "break_glass",
    "components",
    "input_groups",
    "inputs",
    "installs",
    "permissions",
    "policies",
    "runbooks",
    "secrets",
];

pub fn check(reader: &Reader<'_>) {
    for path in legacy(reader.app) {
        let message =
            "this file is of the older one-file format, which is not supported".to_string();
        let remedy = "split it into metadata.toml, inputs.toml, sandbox.toml and components/*.toml";
        reader.about(Severity::Error, "legacy_format", path, (message, remedy));
    }
    let unused = |path: &str, what: &str, suggestion: Option<&str>| {
        let message = format!("{what} is not part of the app format and has no effect");
        let remedy = match suggestion {
            Some(suggestion) => format!("did you mean `{suggestion}`?"),
            None => "remove it, or move it into a directory of the app format".to_string(),
        };
        reader.about(Severity::Warning, "unused_file", path, (message, &remedy));
    };
    let mut last = "";
    for (path, _) in reader.app.iter().filter(|(path, _)| path.ends_with(".toml")) {
        let Some((directory, _)) = path.split_once('/') else {
            if !FILES.contains(&path) && !is_legacy(path) {
                unused(path, "this file", nearest(path, FILES));
            }
            continue;
        };
        // Modules and charts have TOML files of their own, so only likely misspellings are
        // reported.
        if directory != last
            && !DIRECTORIES.contains(&directory)
            && let Some(suggestion) = nearest(directory, DIRECTORIES)
        {
            unused(path, &format!("the directory {directory}/"), Some(&format!("{suggestion}/")));
        }
        last = directory;
    }
}

/// Files of the older one-file format.
pub fn legacy(app: &Tree) -> impl Iterator<Item = &str> {
    app.iter().map(|(path, _)| path).filter(|path| is_legacy(path))
}

fn is_legacy(path: &str) -> bool {
    !path.contains('/') && path.starts_with("nuon.") && path.ends_with(".toml")
}
