//! Location of the Postgres binaries on this machine.
use std::{
    env, fs,
    path::{Path, PathBuf},
};

use tokio::process::Command;

use super::EmbeddedError;

/// Environment variable that names the directory of the binaries.
pub const BIN_ENV: &str = "STEAD_PG_BIN";

/// Directory in which Debian installs each major version.
pub(super) const DEBIAN: &str = "/usr/lib/postgresql";
/// Oldest supported major version.
const OLDEST_MAJOR: u32 = 14;

/// Binaries of a Postgres installation.
#[derive(Debug, Clone)]
pub(super) struct Binaries {
    pub(super) initdb: PathBuf,
    pub(super) postgres: PathBuf,
    pub(super) major: u32,
}

impl Binaries {
    /// Searches `STEAD_PG_BIN`, or else `PATH`, or else the newest version in Debian's directory.
    pub(super) async fn find() -> Result<Binaries, EmbeddedError> {
        let directory = match env::var_os(BIN_ENV) {
            // A wrong `STEAD_PG_BIN` is an error and not replaced by another directory.
            Some(named) => Some(PathBuf::from(named)).filter(|named| has_binaries(named)),
            None => candidates().into_iter().find(|directory| has_binaries(directory)),
        };
        let looked = || env::var(BIN_ENV).unwrap_or_else(|_| format!("{DEBIAN}/*/bin"));
        let directory =
            directory.ok_or_else(|| EmbeddedError::NotInstalled { looked: looked() })?;
        let (initdb, postgres) = (directory.join("initdb"), directory.join("postgres"));
        let major = major(&postgres).await?;
        if major < OLDEST_MAJOR {
            let binary = postgres.display().to_string();
            return Err(EmbeddedError::TooOld { binary, found: major });
        }
        Ok(Binaries { initdb, postgres, major })
    }
}

pub(super) fn candidates() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    // initdb finds its files relative to the target of a link in PATH.
    let linked = env::split_paths(&path)
        .filter_map(|directory| fs::canonicalize(directory.join("postgres")).ok())
        .filter_map(|binary| binary.parent().map(Path::to_path_buf));
    let mut found: Vec<_> = linked.collect();
    let versions = fs::read_dir(DEBIAN).into_iter().flatten().filter_map(Result::ok);
    let mut versions: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| {
            Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin")))
        })
        .collect();
    versions.sort_unstable();
    found.extend(versions.into_iter().rev().map(|(_, directory)| directory));
    found
}

fn has_binaries(directory: &Path) -> bool {
    directory.join("initdb").is_file() && directory.join("postgres").is_file()
}

pub(super) async fn major(postgres: &Path) -> Result<u32, EmbeddedError> {
    let binary = || postgres.display().to_string();
    let asked = Command::new(postgres).arg("--version").output().await;
    let answer = asked.map_err(super::about(postgres.display()))?;
    let said = String::from_utf8_lossy(&answer.stdout).trim().to_string();
    version(&said).ok_or_else(|| EmbeddedError::NoVersion { binary: binary(), said })
}

/// Parses output like `postgres (PostgreSQL) 15.18 (Debian …)` or `postgres (PostgreSQL) 18beta1`.
fn version(said: &str) -> Option<u32> {
    let number = said.split("(PostgreSQL) ").nth(1)?;
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn a_version_is_read_from_what_the_binary_says() {
        let said = "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)";
        assert_eq!(version(said), Some(15));
        assert_eq!(version("postgres (PostgreSQL) 18beta1"), Some(18));
        assert_eq!(version("something else 15"), None);
    }
}
