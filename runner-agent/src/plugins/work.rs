//! Converts a manifest to work: checks names that become paths, creates the directories, and builds
//! the environment.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt, PermissionsExt},
    path::Path,
    time::Duration,
};

use schemas::{manifest::Manifest, runner::JobKind};
use serde_json::Value;

use super::{
    cluster::{ALLOWS as KUBECONFIG_ALLOWS, KUBECONFIG},
    contract::{JobContext, PluginError},
    plugin::{IoContext, Operation, Work},
    process::{ChildSpec, Code},
};
use crate::{isolation::Sandbox, state::StateStore};

/// Search path of tools if the customer sets none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl<'a> Work<'a> {
    /// Checks a manifest and creates the directories of its work.
    ///
    /// # Errors
    /// [`PluginError::Refused`] if the manifest is malformed, or [`PluginError::Io`].
    pub(crate) fn new(manifest: &'a Manifest, job: &'a JobContext) -> Result<Self, PluginError> {
        let key = manifest.kind.subject();
        let name = string_input(&manifest.inputs, key).ok_or_else(|| {
            PluginError::Refused(format!("cannot run the job: the manifest's inputs have no {key}"))
        })?;
        let is_path = match manifest.kind {
            JobKind::Build | JobKind::Plan | JobKind::Apply | JobKind::Sync => true,
            JobKind::Resolve | JobKind::Preflight | JobKind::Action => false,
        };
        if is_path && !is_safe(name) {
            let refusal = format!(
                "cannot run the job: {name:?} is not a valid component name; use up to 128 letters, digits, `-`, `_` and `.`, \
                 not starting with `.`"
            );
            return Err(PluginError::Refused(refusal));
        }
        let (operation, is_check) = match string_input(&manifest.inputs, "operation") {
            None | Some("apply") => (Operation::Apply, false),
            Some("destroy") => (Operation::Destroy, false),
            Some("check") if manifest.kind == JobKind::Plan => (Operation::Apply, true),
            Some(other) => {
                return Err(PluginError::Refused(format!(
                    "cannot run the job: {other:?} is not a valid operation; use apply or destroy, or check for a plan"
                )));
            }
        };
        let present = match manifest.inputs.get("present") {
            None => false,
            Some(Value::Bool(present)) => *present,
            Some(_) => {
                return Err(PluginError::Refused(
                    "cannot run the job: the input `present` is not a boolean".into(),
                ));
            }
        };
        let state = match manifest.kind.uses_state() {
            true => job.state_of(name),
            false => StateStore::new(&job.work_dir, "state"),
        };
        private_dir(state.dir())?;
        private_dir(&job.work_dir.join("home"))?;
        let root = job.work_dir.join("source");
        private_dir(&root)?;
        let (source, directories) = (root.clone(), vec![]);
        let kubeconfig = None;
        Ok(Work {
            manifest,
            job,
            name,
            operation,
            present,
            is_check,
            state,
            root,
            source,
            directories,
            kubeconfig,
        })
    }

    /// Returns the time from the stop signal to SIGKILL.
    pub(crate) fn grace(&self) -> Duration {
        Duration::from_millis(self.manifest.timeouts.grace_ms)
    }

    /// Returns the sandbox of a program, if it has one.
    pub(crate) fn sandbox(&self, spec: &ChildSpec) -> Option<&Sandbox> {
        self.job.sandbox.as_ref().filter(|_| spec.code == Code::Job)
    }

    /// Returns the environment of every child of this job. Values of the runner and the customer
    /// override the manifest's.
    pub(crate) fn environment(&self) -> BTreeMap<String, String> {
        let home = self.job.work_dir.join("home").display().to_string();
        let mut env: BTreeMap<String, String> = [("LANG".into(), "C.UTF-8".into())].into();
        env.extend(self.manifest.env.clone());
        env.extend([("PATH".into(), PATH.into()), ("HOME".into(), home)]);
        env.extend(self.job.env.clone());
        if let Some(kubeconfig) = &self.kubeconfig {
            env.insert(KUBECONFIG.into(), kubeconfig.display().to_string());
        }
        if !self.job.kubeconfig_allows.is_empty() {
            let allowed: Vec<_> =
                self.job.kubeconfig_allows.iter().map(|feature| feature.as_str()).collect();
            env.insert(KUBECONFIG_ALLOWS.into(), allowed.join(","));
        }
        env.insert("STEAD_JOB".into(), self.job.job.to_string());
        env.insert("STEAD_EXECUTION".into(), self.job.execution.to_string());
        env
    }

    /// Returns an input that is a string.
    pub(crate) fn input(&self, key: &str) -> Option<&'a str> {
        string_input(&self.manifest.inputs, key)
    }
}

/// Creates a directory that only the runner's user can enter.
pub(crate) fn private_dir(dir: &Path) -> Result<(), PluginError> {
    let make = || format!("cannot create {}", dir.display());
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent).doing(make)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // An earlier step could create a link here, whose target must keep its permissions.
            if fs::symlink_metadata(dir).doing(make)?.is_symlink() {
                return Err(error).doing(|| format!("{} is a link", make()));
            }
            fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).doing(make)
        }
        created => created.doing(make),
    }
}

/// Creates a file that only the runner's user can read, and syncs its data to disk.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), PluginError> {
    let write = || format!("cannot write {}", path.display());
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path).doing(write)?;
    file.write_all(bytes).doing(write)?;
    file.sync_data().doing(write)
}

fn string_input<'v>(inputs: &'v Value, key: &str) -> Option<&'v str> {
    inputs.get(key).and_then(Value::as_str)
}

pub(crate) fn is_safe(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !name.starts_with('.') && (1..=128).contains(&name.len()) && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::is_safe;

    #[test]
    fn a_component_is_never_a_path() {
        for name in ["", ".", "..", ".x", "a/b", "a\0", "ä", &"a".repeat(129)] {
            assert!(!is_safe(name), "{name:?}");
        }
        for name in ["sandbox", "whoami-2", "certificate_0.1"] {
            assert!(is_safe(name), "{name:?}");
        }
    }
}
