//! Paths of the programs, and the execution of a command.
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Returns the path of a program of this workspace, as `cargo build` built it.
pub fn program(name: &str) -> PathBuf {
    let test_binary = std::env::current_exe().expect("cannot find the path of the test");
    // A test is in target/debug/deps; a program that uses this is in target/debug.
    let mut candidates =
        test_binary.ancestors().skip(1).take(2).map(|directory| directory.join(name));
    let Some(program) = candidates.find(|path| path.exists()) else {
        panic!("{name} is not built: cargo build --workspace --bins");
    };
    program
}

/// Returns the standard output of a command, which must succeed.
#[track_caller]
pub fn stdout_of(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("cannot start the program");
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?} ended with {status}\n{stdout}\n{stderr}");
    stdout.into_owned()
}

/// Returns whether a missing tool must fail the test instead of skipping it.
pub fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true" || value == "1")
}

/// Returns the directories of PATH without a program. A directory that has the program is replaced
/// by links to its other programs.
pub fn path_without(program: &str, links: &Path) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").expect("PATH is not set");
    let absolute = std::env::split_paths(&path).filter(|dir| dir.is_absolute());
    let without = |dir: PathBuf| {
        if !dir.join(program).exists() {
            return dir;
        }
        let links = links.join(format!("without-{}", dir.display().to_string().replace('/', "-")));
        fs::create_dir_all(&links).unwrap();
        for other in fs::read_dir(&dir).unwrap().flatten() {
            if other.file_name() != program {
                // PATH may contain the same directory twice.
                let _may_exist = symlink(other.path(), links.join(other.file_name()));
            }
        }
        links
    };
    absolute.map(without).collect()
}

/// Returns whether git-lfs is installed. Without it, the test prints a note and passes; in CI it
/// fails.
pub fn git_lfs_or_skip() -> bool {
    if Command::new("git-lfs").arg("version").output().is_ok() {
        return true;
    }
    assert!(!in_ci(), "CI must have git-lfs on PATH");
    eprintln!("SKIPPED: git-lfs is not on PATH");
    false
}

/// Returns whether Terraform or OpenTofu is installed. Without it, the test prints a note and
/// passes; in CI it fails.
pub fn terraform_or_skip() -> bool {
    let is_installed = |tool: &str| Command::new(tool).arg("version").output().is_ok();
    if is_installed("terraform") || is_installed("tofu") {
        return true;
    }
    assert!(!in_ci(), "CI must have terraform or tofu on PATH");
    eprintln!("SKIPPED: neither terraform nor tofu is on PATH");
    false
}

/// Returns the path of Helm. Without it, the test prints a note and passes; in CI it fails.
pub fn helm_or_skip() -> Option<PathBuf> {
    let helm = std::env::var_os("STEAD_TEST_HELM").map(PathBuf::from);
    if helm.is_none() {
        assert!(!in_ci(), "CI must have Helm in STEAD_TEST_HELM");
        eprintln!("SKIPPED: no Helm: set STEAD_TEST_HELM");
    }
    helm
}

/// Returns the path of kubectl. Without it, the test prints a note and passes; in CI it fails.
pub fn kubectl_or_skip() -> Option<PathBuf> {
    let kubectl = std::env::var_os("STEAD_TEST_KUBECTL").map(PathBuf::from);
    if kubectl.is_none() {
        assert!(!in_ci(), "CI must have kubectl in STEAD_TEST_KUBECTL");
        eprintln!("SKIPPED: no kubectl: set STEAD_TEST_KUBECTL");
    }
    kubectl
}
