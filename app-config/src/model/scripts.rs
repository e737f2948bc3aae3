//! Directories of repositories with the scripts of action steps. They are built like the sources of
//! components.
use std::collections::BTreeMap;

use domain::{digest::Digest, git::GitSource};

use super::{Action, Source};
use crate::{text::Origin, tree::sha256};

/// Kind of a build that packs scripts. No plugin has this name.
pub const ACTION_SCRIPTS: &str = "action_scripts";

/// Directory with scripts. Steps that name the same directory at the same reference share it.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptSource {
    /// Name of its build and its artifact; see [`Source::scripts_name`].
    pub name: String,
    /// Location of the first step that names it.
    pub at: Origin,
    pub file: String,
    pub source: Source,
    /// Source in git. `None` if the bundle contains the directory.
    pub git: Option<GitSource>,
    /// Digest of everything that defines the scripts.
    pub digest: Option<Digest>,
}

/// Returns the directories with scripts of all actions, sorted by name.
pub fn script_sources(actions: &[Action]) -> Vec<ScriptSource> {
    let mut all = BTreeMap::new();
    for action in actions {
        for step in &action.steps {
            let Some(source) = &step.source else { continue };
            let name = source.scripts_name();
            all.entry(name.clone()).or_insert_with(|| ScriptSource {
                name,
                at: step.at.clone(),
                file: action.file.clone(),
                source: source.clone(),
                git: None,
                digest: None,
            });
        }
    }
    all.into_values().collect()
}

impl Source {
    /// Name of the artifact of a directory with scripts: readable, and different for every
    /// repository, directory and reference.
    pub fn scripts_name(&self) -> String {
        let reference = self.branch.as_deref().unwrap_or_default();
        let parts = [self.repo.as_str(), self.directory.as_str(), reference];
        let parts = parts.map(|part| format!("{}:{part}", part.len()));
        let digest = sha256(parts.concat().as_bytes()).to_string();
        let digits: String = digest.chars().skip("sha256:".len()).take(10).collect();
        let path = if self.directory == "." { &self.repo } else { &self.directory };
        let last = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let plain = |c: char| match c {
            c if c.is_ascii_alphanumeric() => c.to_ascii_lowercase(),
            _ => '-',
        };
        let last: String = last.chars().map(plain).take(40).collect();
        format!("scripts-{}-{digits}", last.trim_matches('-'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_readable_and_unique() {
        let source = |repo: &str, directory: &str, branch: Option<&str>| {
            Source {
                repo: repo.into(),
                directory: directory.into(),
                branch: branch.map(str::to_owned),
                connected: false,
            }
            .scripts_name()
        };
        let name = source("acme/actions", "src/Kube_Checks", Some("main"));
        assert!(name.starts_with("scripts-kube-checks-") && name.len() == 30, "{name}");
        let others = [
            source("acme/actions", "src/Kube_Checks", None),
            source("acme/actions", "src/kube-checks", Some("main")),
            source("acme/other", "src/Kube_Checks", Some("main")),
            source("acme/actions/", ".", Some("main")),
            source(".", ".", None),
        ];
        let all: std::collections::BTreeSet<_> = others.iter().chain([&name]).collect();
        assert_eq!(all.len(), 6, "{all:?}");
    }
}
