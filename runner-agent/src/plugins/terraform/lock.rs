//! Pins the providers of a module in a lock file, if its author did not.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use super::{
    tool::Tool,
    workspace::{LOCK_FILE, Workspace},
};
use crate::plugins::{
    contract::{Sink, Stream},
    plugin::{Halt, IoContext as _},
    process::{self, ChildEnd, ChildSpec},
};

/// Platforms of runners, as Terraform names them.
const PLATFORMS: [&str; 2] = ["linux_amd64", "linux_arm64"];
/// Maximum duration of the downloads from the registry of the providers.
const TIME_LIMIT: Duration = Duration::from_secs(5 * 60);
/// First line of a lock file that a build wrote.
const MARKER: &str = "# Written by a build of Stead\n";

/// Completes the lock file that `init` wrote with the digests for every platform. Removes it if they
/// are not available: a lock file for one platform would block the runners of another one.
pub(super) async fn pin(workspace: &Workspace<'_>, sink: &mut dyn Sink) -> Result<(), Halt> {
    let mut arguments = ["providers", "lock", "-no-color"].map(String::from).to_vec();
    arguments.extend(PLATFORMS.map(|platform| format!("-platform={platform}")));
    let spec = ChildSpec { limit: Some(TIME_LIMIT), ..workspace.spec(arguments) };
    let work = workspace.work;
    let ended = process::run(&spec, work, sink, |sink, stream, line| sink.line(stream, line)).await;
    let is_complete = match ended? {
        ChildEnd::Exit(code) => code == 0,
        ChildEnd::TimedOut => false,
        ended @ ChildEnd::Signal(_) => return Err(ended.into_failure("providers lock")),
    };
    if !is_complete {
        return remove(&work.source, sink);
    }
    mark(&work.source.join(LOCK_FILE)).doing(|| "cannot write a dependency lock file".into())?;
    let line = format!("the module has a lock file of this build for {}", PLATFORMS.join(", "));
    sink.line(Stream::Runner, line.as_bytes());
    Ok(())
}

/// Removes the lock file that `init` wrote, and reports that the module has none.
pub(super) fn remove(source: &Path, sink: &mut dyn Sink) -> Result<(), Halt> {
    let lock = source.join(LOCK_FILE);
    if lock.exists() {
        fs::remove_file(&lock).doing(|| "cannot remove a dependency lock file".into())?;
    }
    let line = format!(
        "the module is unpinned: it has no {LOCK_FILE}, and its providers for {} are not available; commit that file",
        PLATFORMS.join(", ")
    );
    sink.line(Stream::Runner, line.as_bytes());
    Ok(())
}

fn mark(lock: &Path) -> std::io::Result<()> {
    let text = fs::read_to_string(lock)?;
    fs::write(lock, format!("{MARKER}{text}"))?;
    fs::set_permissions(lock, fs::Permissions::from_mode(0o644))
}

/// Returns true if a lock file binds the tool. One that a build wrote with the other tool names the
/// providers of another registry, so that the tool would find none of its providers in it.
pub(super) fn binds(lock: &str, tool: &Tool) -> bool {
    !lock.starts_with(MARKER) || lock.contains(&format!("provider \"{}/", tool.registry()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::testing::TestSink;

    #[test]
    fn a_lock_file_of_a_build_binds_the_tool_of_its_registry() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(LOCK_FILE);
        let text = "provider \"registry.opentofu.org/hashicorp/null\" {\n}\n";
        fs::write(&file, text).unwrap();
        mark(&file).unwrap();
        let marked = fs::read_to_string(&file).unwrap();
        assert!(marked.ends_with(text));
        assert!(binds(&marked, &Tool::for_test("tofu")));
        assert!(!binds(&marked, &Tool::for_test("terraform")));
        assert!(binds(text, &Tool::for_test("terraform")));
    }

    #[test]
    fn an_incomplete_lock_file_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(LOCK_FILE);
        fs::write(&file, "").unwrap();
        for _ in 0..2 {
            remove(dir.path(), &mut TestSink::default()).unwrap();
            assert!(!file.exists());
        }
    }
}
