//! State of an app, folded from its events.
use std::collections::BTreeMap;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::{
    digest::Digest,
    git::GitSource,
    ids::{BuildId, ComponentId, JobId},
    plugin::PinnedPlugin,
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, Encode, Decode)]
pub struct App {
    /// Name of the app. `None` before the app is created.
    pub name: Option<String>,
    pub versions: BTreeMap<u32, Published>,
    /// Components of all versions, including removed ones, by name.
    pub components: BTreeMap<String, ComponentId>,
    /// References that each version resolves.
    pub sources: BTreeMap<u32, Vec<VersionSource>>,
}

/// Reference of a config version, which is resolved once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
pub struct VersionSource {
    /// Address of the repository, as in the config.
    pub repo: String,
    /// Branch, tag or commit id. `HEAD` is the default branch.
    #[serde(rename = "ref")]
    pub reference: String,
    pub resolution: Resolution,
}

/// Resolution of a reference to a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Resolution {
    /// No job resolves the reference yet.
    Pending,
    /// The job is queued or running.
    Queued {
        job: JobId,
    },
    Resolved {
        commit: String,
    },
    Failed {
        /// Explanation of the failure for users.
        detail: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Published {
    /// Number of the version, from 1.
    pub config_version: u32,
    /// Digest of the bundle, which is stored as a blob.
    pub bundle: Digest,
    /// All components of the version.
    pub components: Vec<PublishedComponent>,
    /// Published plugins that the version uses. The bundle can pin other plugins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plugins: Vec<PinnedPlugin>,
}

impl Published {
    /// Returns the published plugin of a component type, if the version uses one.
    pub fn plugin(&self, kind: &str) -> Option<&PinnedPlugin> {
        self.plugins.iter().find(|plugin| plugin.name == kind)
    }
}

/// Component in one config version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Encode, Decode)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PublishedComponent {
    /// Id of the component, the same in every version.
    pub component: ComponentId,
    /// Name of the component in the config and in templates.
    pub name: String,
    /// Component type, which selects the plugin.
    pub kind: String,
    /// Digest of everything that defines the component: its source, settings, files and plugin.
    pub definition: Digest,
    /// Build whose artifact this version uses. An unchanged component keeps its earlier build,
    /// unless that build failed.
    pub build: BuildId,
    /// Source in a git repository. Absent if the bundle contains the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitSource>,
    /// Commit of the git source. Absent until the reference is resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

impl Resolution {
    /// Returns true if no job resolves the reference yet.
    pub fn is_pending(&self) -> bool {
        *self == Resolution::Pending
    }

    /// Returns true if this job resolves the reference.
    pub fn is_resolved_by(&self, job: JobId) -> bool {
        *self == Resolution::Queued { job }
    }

    /// Returns true before the end of the resolution.
    pub fn is_open(&self) -> bool {
        match self {
            Resolution::Pending | Resolution::Queued { .. } => true,
            Resolution::Resolved { .. } | Resolution::Failed { .. } => false,
        }
    }
}

impl VersionSource {
    /// Returns repository and reference.
    pub fn target(&self) -> (&str, &str) {
        (&self.repo, &self.reference)
    }
}

impl Published {
    /// Returns the references of the version, each once. A reference with a commit is resolved.
    pub fn sources(&self) -> Vec<VersionSource> {
        let mut sources: Vec<VersionSource> = vec![];
        for component in &self.components {
            let Some(git) = component.git.as_ref() else { continue };
            if sources.iter().any(|known| known.target() == git.target()) {
                continue;
            }
            let resolution = match component.commit.clone() {
                Some(commit) => Resolution::Resolved { commit },
                None => Resolution::Pending,
            };
            let (repo, reference) = (git.repo.clone(), git.reference.clone());
            sources.push(VersionSource { repo, reference, resolution });
        }
        sources
    }

    /// Sets the commit of the components with this reference.
    pub fn resolve(&mut self, repo: &str, reference: &str, commit: &str) {
        for component in &mut self.components {
            if component.git.as_ref().is_some_and(|git| git.target() == (repo, reference)) {
                component.commit = Some(commit.into());
            }
        }
    }
}

impl App {
    /// Returns the newest config version.
    pub fn latest(&self) -> Option<&Published> {
        self.versions.last_key_value().map(|(_, latest)| latest)
    }

    /// Returns the resolution of a reference of a version, if the version uses the reference.
    pub fn resolution(&self, config_version: u32, git: &GitSource) -> Option<&Resolution> {
        self.source(config_version, git.target()).map(|source| &source.resolution)
    }

    /// Returns a reference of a version, if the version uses the reference.
    pub(super) fn source(
        &self,
        config_version: u32,
        target: (&str, &str),
    ) -> Option<&VersionSource> {
        let mut of_version = self.sources.get(&config_version).into_iter().flatten();
        of_version.find(|source| source.target() == target)
    }

    /// Records the resolution of a reference of a version.
    pub(super) fn set_resolution(
        &mut self,
        config_version: u32,
        (repo, reference): (&str, &str),
        resolution: Resolution,
    ) {
        let mut of_version = self.sources.get_mut(&config_version).into_iter().flatten();
        if let Some(source) = of_version.find(|source| source.target() == (repo, reference)) {
            source.resolution = resolution;
        }
    }

    /// Returns true if the version still resolves a reference.
    pub fn is_resolving(&self, config_version: u32) -> bool {
        let of_version = self.sources.get(&config_version).into_iter().flatten();
        let mut open = of_version.filter(|source| source.resolution.is_open());
        open.next().is_some()
    }

    /// Returns the number of the newest config version; 0 before the first.
    pub fn version(&self) -> u32 {
        self.latest().map_or(0, |latest| latest.config_version)
    }
}
