//! Chart repositories in the configuration of the build runner's user (`helm repo add`).

use std::fs;

use serde::Deserialize;
use stead_plugin_kubernetes::failure::{Failure, Outcome};

use crate::helm::REPOSITORY_CONFIG;

#[derive(Default, Deserialize)]
struct Repositories {
    #[serde(default)]
    repositories: Vec<Repository>,
}

/// Repository with a URL. The file also contains its credentials, which only Helm reads.
#[derive(Deserialize)]
struct Repository {
    name: String,
    url: String,
}

/// Returns the name of the configured repository with this URL.
///
/// # Errors
/// The configuration cannot be read.
pub fn configured(url: &str) -> Outcome<Option<String>> {
    let Some(file) = std::env::var_os(REPOSITORY_CONFIG) else { return Ok(None) };
    // The error of the parser would quote the file, which contains credentials.
    let text = fs::read_to_string(&file).map_err(|error| unreadable(&error.to_string()))?;
    find(&text, url)
}

fn find(text: &str, url: &str) -> Outcome<Option<String>> {
    let all: Repositories = serde_saphyr::from_str(text)
        .map_err(|_| unreadable("it is not a list of repositories; run `helm repo list`"))?;
    let trimmed = url.trim_end_matches('/');
    let mut all = all.repositories.into_iter();
    let found = all.find(|one| one.url.trim_end_matches('/') == trimmed);
    match found {
        Some(Repository { name, .. }) if name.starts_with('-') || name.contains('/') => {
            Err(unreadable("the name of a repository begins with - or contains a /; rename it"))
        }
        found => Ok(found.map(|one| one.name)),
    }
}

fn unreadable(why: &str) -> Failure {
    Failure::failed(format!("cannot read the Helm repositories of this build runner: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_found_by_its_url() {
        let text = "apiVersion: ''\nrepositories:\n- name: private\n  url: https://charts.example.com\n  \
                    username: me\n  password: s3cret\n";
        let found = find(text, "https://charts.example.com/").unwrap();
        assert_eq!(found.as_deref(), Some("private"));
        assert_eq!(find(text, "https://charts.example.com/other").unwrap(), None);
        let error = find("repositories: s3cret", "https://x").unwrap_err().message;
        assert!(!error.contains("s3cret"), "{error}");
        assert!(
            find(&text.replace("name: private", "name: -x"), "https://charts.example.com").is_err()
        );
    }
}
