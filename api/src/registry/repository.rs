//! Repository of a component's artifacts: `<app>/<component>`.
use std::{fmt, path::PathBuf, str::FromStr};

/// Names of an app and a component, each safe as a directory name and as an OCI name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Repository {
    app: String,
    component: String,
}

/// Invalid repository name.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("invalid repository {0:?}: expected `<app>/<component>`")]
pub struct RepositoryError(String);

impl Repository {
    /// Returns true if the repository has a plugin, which is only in the layouts of the server.
    pub fn is_plugin(&self) -> bool {
        self.app == schemas::plugin::artifact::REPOSITORY
    }

    /// Path relative to the registry's directory.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(&self.app).join(&self.component)
    }
}

impl FromStr for Repository {
    type Err = RepositoryError;
    fn from_str(text: &str) -> Result<Self, RepositoryError> {
        let parts = text.split_once('/').filter(|(app, component)| plain(app) && plain(component));
        let (app, component) = parts.ok_or_else(|| RepositoryError(text.into()))?;
        Ok(Repository { app: app.into(), component: component.into() })
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.app, self.component)
    }
}

/// Returns true for 1 to 128 letters, digits, `-`, `_` and `.` that begin with a letter or digit
/// and contain no `..`. Such a name is not hidden and stays within its directory.
fn plain(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=128).contains(&name.len())
        && name.bytes().all(allowed)
        && name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
        && !name.contains("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repository_path_stays_inside_the_registry() {
        let name: Repository = "shop/data_store".parse().unwrap();
        assert_eq!(name.to_string(), "shop/data_store");
        for other in ["shop", "shop/", "/x", "../x", "shop/..", "a/b/c", "a/.b", "a/b c", "a/b%2f"]
        {
            assert!(other.parse::<Repository>().is_err(), "{other}");
        }
    }
}
