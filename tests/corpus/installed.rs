//! Installation of Stead as a release has it: programs, and plugins in `libexec`.
use std::{
    fs,
    path::{Path, PathBuf},
};

use tests::program;

/// Installs the built programs in a directory.
pub(crate) fn install(dir: &Path) {
    let libexec = dir.join("bin/libexec");
    fs::create_dir_all(&libexec).unwrap();
    for name in ["stead", "stead-runner"] {
        link(&program(name), &dir.join("bin").join(name));
    }
    // A build can replace the running program.
    link(&std::env::current_exe().unwrap(), &corpus(dir));
    let built = program("stead").parent().unwrap().to_owned();
    for entry in fs::read_dir(&built).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_plugin = name.starts_with("stead-plugin-") && !name.contains('.');
        // The plugin `files` is an example, not a part of a release.
        if is_plugin && name != "stead-plugin-files" {
            link(&entry.path(), &libexec.join(name));
        }
    }
}

/// Returns the program that runs one app.
pub(crate) fn corpus(dir: &Path) -> PathBuf {
    dir.join("bin/corpus")
}

/// Returns the installed `stead`.
pub(crate) fn stead(dir: &Path) -> PathBuf {
    dir.join("bin/stead")
}

fn link(from: &Path, to: &Path) {
    if fs::hard_link(from, to).is_err() {
        fs::copy(from, to).unwrap();
    }
}
