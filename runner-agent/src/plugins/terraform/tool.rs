//! Finds the terraform or tofu that the customer installed. The runner downloads neither.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use domain::digest::Digest;
use nix::sys::signal::Signal;
use oci_layout::sha256_file;
use serde::Deserialize;

use crate::plugins::{
    contract::{PluginError, Sink, Stream},
    plugin::{Halt, IoContext as _, Work},
    process::{self, ChildSpec, Code},
};

/// Error if neither tool is installed.
pub(super) const REMEDY: &str = "cannot run the job: neither terraform nor tofu is on the runner's PATH; install Terraform 1.0 \
     or later (or OpenTofu) on the runner's host, or start the runner with a PATH that has it";

/// Tools in the order of preference.
const NAMES: [&str; 2] = ["terraform", "tofu"];

/// Path and version of terraform or tofu on this host.
pub(super) struct Tool {
    pub path: PathBuf,
    pub version: String,
    binary: &'static str,
}

impl Tool {
    /// Returns name and version, as in a plan digest.
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.binary, self.version)
    }

    #[cfg(test)]
    pub(super) fn for_test(binary: &'static str) -> Tool {
        Tool { path: PathBuf::from(binary), version: "1.9.0".into(), binary }
    }

    /// Returns the host of the registry from which the tool takes providers without a host.
    pub(super) fn registry(&self) -> &'static str {
        match self.binary {
            "tofu" => "registry.opentofu.org",
            _ => "registry.terraform.io",
        }
    }

    /// Returns the digest of the executable.
    pub(super) fn digest(&self) -> Result<Digest, PluginError> {
        sha256_file(&self.path).doing(|| format!("cannot read {}", self.path.display()))
    }
}

/// Finds the tool and reads its version. Prefers `terraform-VERSION` or `tofu-VERSION` of the
/// requested version.
pub(super) async fn find(
    work: &Work<'_>,
    requested: Option<&str>,
    sink: &mut dyn Sink,
) -> Result<Tool, Halt> {
    let environment = work.environment();
    let path = environment.get("PATH").map(String::as_str).unwrap_or_default();
    if let Some(version) = requested.filter(|version| is_version(version))
        && let Some((binary, found)) = find_version(path, version)
    {
        let tool = read_version(work, binary, found, sink).await?;
        if tool.version != version {
            let (path, found) = (tool.path.display(), &tool.version);
            let why = format!(
                "cannot use {path}: it reports version {found}, not {version}; correct or remove this file"
            );
            return Err(PluginError::ToolMissing(why).into());
        }
        return Ok(tool);
    }
    let Some((binary, path)) = find_preferred(path) else {
        return Err(PluginError::ToolMissing(REMEDY.into()).into());
    };
    read_version(work, binary, path, sink).await
}

/// Returns true for a version that is safe in a file name.
fn is_version(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    (1..=32).contains(&text.len()) && text.bytes().all(is_allowed)
}

async fn read_version(
    work: &Work<'_>,
    binary: &'static str,
    path: PathBuf,
    sink: &mut dyn Sink,
) -> Result<Tool, Halt> {
    let env = BTreeMap::from([("CHECKPOINT_DISABLE".to_owned(), "1".to_owned())]);
    let args = vec!["version".into(), "-json".into()];
    let dir = work.job.work_dir.clone();
    let spec = ChildSpec {
        program: path.clone(),
        args,
        dir,
        env,
        stop: Signal::SIGINT,
        limit: None,
        code: Code::Job,
    };
    let mut output = Vec::new();
    let ended = process::run(&spec, work, sink, |sink, stream, line| match stream {
        Stream::Out => output.extend_from_slice(line),
        Stream::Err | Stream::Runner => sink.line(stream, line),
    });
    ended.await?.require_success(&format!("{binary} version"))?;
    #[derive(Deserialize)]
    struct VersionOutput {
        terraform_version: String,
    }
    let version =
        serde_json::from_slice::<VersionOutput>(&output).map(|parsed| parsed.terraform_version);
    let version = version.ok().filter(|version| !version.starts_with("0."));
    let old = || {
        let found = path.display();
        PluginError::ToolMissing(format!(
            "cannot use {found}: it does not report a version of 1.0 or later; install a later version"
        ))
    };
    Ok(Tool { version: version.ok_or_else(old)?, path, binary })
}

/// Returns the tool with this version in its file name.
fn find_version(path: &str, version: &str) -> Option<(&'static str, PathBuf)> {
    let find = |name| Some((name, find_in_path(path, &format!("{name}-{version}"))?));
    NAMES.into_iter().find_map(find)
}

/// Returns the preferred tool that is on the path, regardless of the order of the directories.
fn find_preferred(path: &str) -> Option<(&'static str, PathBuf)> {
    NAMES.into_iter().find_map(|name| Some((name, find_in_path(path, name)?)))
}

fn find_in_path(path: &str, name: &str) -> Option<PathBuf> {
    path.split(':').map(|dir| Path::new(dir).join(name)).find(|file| {
        file.is_absolute()
            && fs::metadata(file)
                .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a PATH of directories that contain files with these names and modes.
    fn path(dirs: &[&[(&str, u32)]]) -> (tempfile::TempDir, String) {
        let top = tempfile::tempdir().unwrap();
        let mut all = Vec::new();
        for (index, files) in dirs.iter().enumerate() {
            let dir = top.path().join(index.to_string());
            fs::create_dir(&dir).unwrap();
            for (name, mode) in *files {
                fs::write(dir.join(name), "#!/bin/sh").unwrap();
                fs::set_permissions(dir.join(name), fs::Permissions::from_mode(*mode)).unwrap();
            }
            all.push(dir.display().to_string());
        }
        (top, all.join(":"))
    }

    fn preferred(dirs: &[&[(&str, u32)]]) -> Option<(&'static str, String)> {
        let (top, path) = path(dirs);
        let (name, file) = find_preferred(&path)?;
        Some((name, file.strip_prefix(top.path()).unwrap().display().to_string()))
    }

    #[test]
    fn terraform_is_preferred_in_any_directory() {
        let both = preferred(&[&[("tofu", 0o755)], &[("tofu", 0o755), ("terraform", 0o755)]]);
        assert_eq!(both, Some(("terraform", "1/terraform".into())));
    }

    #[test]
    fn tofu_is_used_without_an_executable_terraform() {
        let tofu = Some(("tofu", "1/tofu".into()));
        assert_eq!(preferred(&[&[], &[("tofu", 0o755)]]), tofu);
        assert_eq!(preferred(&[&[("terraform", 0o644)], &[("tofu", 0o755)]]), tofu);
    }

    #[test]
    fn a_requested_version_is_part_of_a_file_name() {
        assert!(is_version("1.9.8") && is_version("1.10.0-rc1"));
        for other in ["", "../x", "1.9/x", "1 9", &"1".repeat(33)] {
            assert!(!is_version(other), "{other}");
        }
    }

    #[test]
    fn nothing_is_found_on_a_path_without_a_tool() {
        assert_eq!(preferred(&[&[], &[("terraform.bak", 0o755)]]), None);
        assert_eq!(find_preferred(""), None);
    }

    #[test]
    fn relative_path_entries_are_ignored() {
        // A relative path would start in the module's directory, which the vendor controls.
        let (_top, path) = path(&[&[("terraform", 0o755)]]);
        let up = "../".repeat(std::env::current_dir().unwrap().components().count());
        let relative = format!("{up}{}", path.trim_start_matches('/'));
        assert!(Path::new(&relative).join("terraform").exists() && find_preferred(&path).is_some());
        assert_eq!(find_preferred(&relative), None);
    }
}
