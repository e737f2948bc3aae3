//! Reads a result that a plugin wrote to a file, because it exceeds the limit of a message.

use std::{
    fs::{self, File, OpenOptions},
    io::Read,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use schemas::plugin::{FILE_LIMIT, FileRef};
use serde_json::Value;

use crate::plugins::contract::PluginError;

/// Returns the value in the file. The file must be a regular file in the work directory of the job
/// and match its reference.
pub(super) fn read(
    file: &FileRef,
    call: &str,
    version: u32,
    work_dir: &Path,
) -> Result<Value, PluginError> {
    let failed = |why: String| {
        let path = file.path.display();
        PluginError::PluginFailed(format!("cannot use its file {path} for {call}: {why}"))
    };
    if version < 2 || !matches!(call, "plan" | "outputs" | "build") {
        return Err(failed(
            "only results of plan, outputs and build can be files, from version 2 of the protocol"
                .into(),
        ));
    }
    let opened = open(&file.path, FILE_LIMIT, work_dir).map_err(failed)?;
    let mut content = Vec::new();
    let read = opened.take(FILE_LIMIT + 1).read_to_end(&mut content);
    read.map_err(|error| failed(error.to_string()))?;
    file.parse(&content).map_err(|error| failed(error.to_string()))
}

/// Opens a regular file in the work directory of the job.
///
/// # Errors
/// Returns the reason why the runner does not read the file.
pub(in crate::plugins) fn open(path: &Path, limit: u64, work_dir: &Path) -> Result<File, String> {
    let io = |error: std::io::Error| error.to_string();
    let parent = path.parent().ok_or_else(|| "it has no directory".to_owned())?;
    let (parent, root) =
        (fs::canonicalize(parent).map_err(io)?, fs::canonicalize(work_dir).map_err(io)?);
    if !path.is_absolute() || !parent.starts_with(&root) {
        return Err(format!("it is not in the work directory {}", work_dir.display()));
    }
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(io)?;
    let metadata = opened.metadata().map_err(io)?;
    if !metadata.is_file() {
        return Err("it is not a regular file".into());
    }
    if metadata.len() > limit {
        return Err(format!("it exceeds the limit of {limit} bytes"));
    }
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_regular_file_in_the_work_directory_is_read() {
        let (work, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let content = br#"{"noop":true}"#;
        let (inside, outside) = (work.path().join("value"), other.path().join("value"));
        for path in [&inside, &outside] {
            fs::write(path, content).unwrap();
        }
        symlink(&outside, work.path().join("link")).unwrap();
        symlink(other.path(), work.path().join("dir")).unwrap();
        nix::unistd::mkfifo(&work.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let read_as = |path: &Path, call: &str, version| {
            let file = FileRef::of(path.to_owned(), content);
            read(&file, call, version, work.path()).map_err(|error| error.to_string())
        };
        // accepted
        for call in ["plan", "outputs", "build"] {
            assert_eq!(read_as(&inside, call, 2).unwrap(), json!({ "noop": true }));
        }
        // rejected
        for (path, call, version, why) in [
            (inside.clone(), "plan", 1, "from version 2"),
            (inside.clone(), "state", 2, "only results of plan"),
            (outside.clone(), "plan", 2, "it is not in the work directory"),
            (work.path().join("dir/value"), "plan", 2, "it is not in the work directory"),
            (work.path().join("../value"), "plan", 2, "it is not in the work directory"),
            (work.path().join("link"), "plan", 2, "symbolic links"),
            (work.path().join("fifo"), "plan", 2, "it is not a regular file"),
            (work.path().join("absent"), "plan", 2, "No such file"),
            ("value".into(), "plan", 2, "cannot use its file value"),
        ] {
            let refusal = read_as(&path, call, version).unwrap_err();
            assert!(refusal.contains(why), "{}: {refusal}", path.display());
        }
        fs::write(&inside, br#"{"noop":fals}"#).unwrap();
        let changed = read_as(&inside, "plan", 2).unwrap_err();
        assert!(changed.contains("its digest is"), "{changed}");
        fs::write(&inside, b"").unwrap();
        fs::File::options().write(true).open(&inside).unwrap().set_len(FILE_LIMIT + 1).unwrap();
        let large = read_as(&inside, "plan", 2).unwrap_err();
        assert!(large.contains("it exceeds the limit of 7340032 bytes"), "{large}");
    }
}
