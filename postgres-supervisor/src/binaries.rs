//! Location of the Postgres binaries on this machine.
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Error, about};

/// Environment variable that names the directory of the binaries.
pub const BIN_ENV: &str = "STEAD_PG_BIN";

/// Locations in which distributions install each major version: the parent directory, and the
/// prefix of the directory name before the version.
const VERSIONED: [(&str, &str); 3] =
    [("/usr/lib/postgresql", ""), ("/usr", "pgsql-"), ("/opt", "pgsql-")];
/// Searched locations, as error messages list them.
const LOOKED: &str = "PATH, /usr/lib/postgresql/*/bin, /usr/pgsql-*/bin and /opt/pgsql-*/bin";
const OLDEST_MAJOR: u32 = 14;

#[derive(Debug, Clone)]
pub struct Binaries {
    directory: PathBuf,
    pub(crate) major: u32,
}

impl Binaries {
    /// Searches `STEAD_PG_BIN`, or else `PATH`, or else the newest version in the directories of
    /// distributions.
    ///
    /// # Errors
    /// [`Error::NotInstalled`], [`Error::TooOld`], [`Error::NoVersion`] or [`Error::Io`].
    pub fn find() -> Result<Binaries, Error> {
        let is_server = |directory: &PathBuf| has(directory, &["initdb", "postgres"]);
        let (directory, looked) = match named() {
            // A wrong `STEAD_PG_BIN` is an error and not replaced by another directory.
            Some(named) => {
                let looked = format!("{BIN_ENV}={}", named.display());
                (Some(named).filter(is_server), looked)
            }
            None => (candidates("postgres").into_iter().find(is_server), LOOKED.into()),
        };
        let directory = directory.ok_or(Error::NotInstalled { looked })?;
        let binary = directory.join("postgres");
        let major = major(&binary)?;
        if major < OLDEST_MAJOR {
            return Err(Error::TooOld { binary: binary.display().to_string(), found: major });
        }
        Ok(Binaries { directory, major })
    }

    /// Returns the directory of the client programs of a major version. They may be installed
    /// without a server.
    ///
    /// # Errors
    /// [`Error::NoClient`], which names the version.
    pub fn clients(version: u32) -> Result<PathBuf, Error> {
        let program = "pg_dump";
        let is_wanted = |directory: &PathBuf| {
            has(directory, &[program, "pg_restore"])
                && major(&directory.join(program)).is_ok_and(|found| found == version)
        };
        let found = named()
            .into_iter()
            .chain(candidates("postgres"))
            .chain(candidates(program))
            .find(is_wanted);
        let looked = format!("{BIN_ENV}, {LOOKED}");
        found.ok_or(Error::NoClient { program, major: version, looked })
    }

    /// Path of a program, for example `psql`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

fn named() -> Option<PathBuf> {
    env::var_os(BIN_ENV).map(PathBuf::from)
}

/// Directories of a program in `PATH`, then the directories of distributions, newest version first.
fn candidates(program: &str) -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    // initdb finds its files relative to the target of a link in PATH.
    let linked = env::split_paths(&path)
        .filter_map(|directory| fs::canonicalize(directory.join(program)).ok())
        .filter_map(|binary| binary.parent().map(Path::to_path_buf));
    let mut versions = Vec::new();
    for (above, prefix) in VERSIONED {
        for entry in fs::read_dir(above).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let version = name.to_str().and_then(|name| name.strip_prefix(prefix)?.parse().ok());
            versions.extend(version.map(|version: u32| (version, entry.path().join("bin"))));
        }
    }
    versions.sort_unstable();
    linked.chain(versions.into_iter().rev().map(|(_, directory)| directory)).collect()
}

fn has(directory: &Path, programs: &[&str]) -> bool {
    programs.iter().all(|name| directory.join(name).is_file())
}

fn major(binary: &Path) -> Result<u32, Error> {
    let done = Command::new(binary).arg("--version").output().map_err(about(binary.display()))?;
    let output = String::from_utf8_lossy(&done.stdout).trim().to_string();
    let binary = || binary.display().to_string();
    version(&output).ok_or_else(|| Error::NoVersion { binary: binary(), output })
}

/// Parses output like `postgres (PostgreSQL) 15.18 (Debian …)` or `postgres (PostgreSQL) 18beta1`.
fn version(output: &str) -> Option<u32> {
    let number = output.split("(PostgreSQL) ").nth(1)?;
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn version_is_read_from_the_output_of_a_binary() {
        let output = "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)";
        assert_eq!(version(output), Some(15));
        assert_eq!(version("postgres (PostgreSQL) 18beta1"), Some(18));
        assert_eq!(version("something else 15"), None);
    }
}
