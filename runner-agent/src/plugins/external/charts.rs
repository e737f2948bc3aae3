//! Access of builds to private chart repositories and registries, with the configuration of the user of
//! the build runner. Jobs of installs have no such access.
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use schemas::runner::JobKind;

use crate::plugins::plugin::Work;

/// Returns the variables that locate the credentials of Helm and Docker.
pub(super) fn access(work: &Work<'_>) -> BTreeMap<String, String> {
    match work.manifest.kind == JobKind::Build {
        true => variables(&work.job.git_env),
        false => BTreeMap::new(),
    }
}

/// Returns the variables for the environment of an agent. Without a variable, Helm and Docker search
/// their directory in the home directory.
fn variables(agent: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let path = |name: &str| agent.get(name).filter(|text| !text.is_empty()).map(PathBuf::from);
    let below = |name: &str, rest: &str| path(name).map(|directory| directory.join(rest));
    let helm = path("HELM_CONFIG_HOME")
        .or_else(|| below("XDG_CONFIG_HOME", "helm"))
        .or_else(|| below("HOME", ".config/helm"));
    let of_helm = |rest: &str| helm.as_deref().map(|directory| directory.join(rest));
    let all = [
        ("DOCKER_CONFIG", path("DOCKER_CONFIG").or_else(|| below("HOME", ".docker"))),
        (
            "HELM_REGISTRY_CONFIG",
            path("HELM_REGISTRY_CONFIG").or_else(|| of_helm("registry/config.json")),
        ),
        (
            "HELM_REPOSITORY_CONFIG",
            path("HELM_REPOSITORY_CONFIG").or_else(|| of_helm("repositories.yaml")),
        ),
    ];
    let present = all.into_iter().filter_map(|(name, path)| Some((name.to_owned(), path?)));
    let present = present.filter(|(_, path)| Path::exists(path));
    present.map(|(name, path)| (name, path.display().to_string())).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn existing_configuration_of_the_agents_user_is_used() {
        let home = tempfile::tempdir().unwrap();
        let at = |path: &str| home.path().join(path).display().to_string();
        let agent = |more: &[(&str, String)]| {
            let own = [("HOME", home.path().display().to_string())];
            let all = own.iter().chain(more);
            variables(&all.map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
        };
        assert!(agent(&[]).is_empty());
        fs::create_dir_all(at(".config/helm/registry")).unwrap();
        fs::create_dir_all(at(".docker")).unwrap();
        for file in
            [".config/helm/registry/config.json", ".config/helm/repositories.yaml", "other.json"]
        {
            fs::write(at(file), "").unwrap();
        }
        let found = agent(&[("HELM_REGISTRY_CONFIG", at("other.json"))]);
        assert_eq!(found["DOCKER_CONFIG"], at(".docker"));
        assert_eq!(found["HELM_REGISTRY_CONFIG"], at("other.json"));
        assert_eq!(found["HELM_REPOSITORY_CONFIG"], at(".config/helm/repositories.yaml"));
        assert_eq!(found.len(), 3);
    }
}
