//! Location of the Postgres programs, and the user that runs them.
use std::{
    env, fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nix::unistd::{Gid, Uid, User, chown};

use super::{TestingError, io};

/// Directory of `initdb`, `pg_ctl`, `pgbench` and the other programs, and the user that runs them.
#[derive(Debug, Clone)]
pub struct Binaries {
    directory: PathBuf,
    /// Another user if this process runs as root, because Postgres does not run as root.
    run_as: Option<(Uid, Gid)>,
}

impl Binaries {
    /// Searches `STEAD_PG_BIN`, `PATH` and the directories of distributions, newest version
    /// first.
    ///
    /// # Errors
    /// [`TestingError::NoPostgres`] or [`TestingError::NoUser`].
    pub fn find() -> Result<Binaries, TestingError> {
        let named = env::var_os("STEAD_PG_BIN").map(PathBuf::from);
        let path = env::var_os("PATH").unwrap_or_default();
        let mut places: Vec<PathBuf> = named.into_iter().chain(env::split_paths(&path)).collect();
        let mut versioned = Vec::new();
        for (root, prefix) in [("/usr/lib/postgresql", ""), ("/usr", "pgsql-"), ("/opt", "pgsql-")]
        {
            for entry in fs::read_dir(root).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let version = name.strip_prefix(prefix).and_then(|text| text.parse::<u32>().ok());
                versioned.extend(version.map(|version| (version, entry.path().join("bin"))));
            }
        }
        versioned.sort();
        places.extend(versioned.into_iter().rev().map(|(_, place)| place));
        // A link on PATH leads to the directory of the other programs.
        let home =
            |place: PathBuf| Some(fs::canonicalize(place.join("initdb")).ok()?.parent()?.into());
        let whole = |place: &PathBuf| {
            ["initdb", "pg_ctl", "postgres"].iter().all(|name| place.join(name).is_file())
        };
        let directory = places.into_iter().filter_map(home).find(whole);
        let directory = directory.ok_or(TestingError::NoPostgres)?;
        let run_as = if Uid::effective().is_root() {
            let user = |name| User::from_name(name).ok().flatten();
            let user = user("postgres").or_else(|| user("nobody")).ok_or(TestingError::NoUser)?;
            Some((user.uid, user.gid))
        } else {
            None
        };
        Ok(Binaries { directory, run_as })
    }

    /// Command of a program, run as the user of Postgres.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.directory.join(program));
        command.current_dir("/").stdin(Stdio::null());
        if let Some((user, group)) = self.run_as {
            command.uid(user.as_raw()).gid(group.as_raw());
        }
        command
    }

    /// Runs a command and returns its output.
    pub(super) fn run(mut command: Command) -> Result<String, TestingError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let done = command.output().map_err(io(&program))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if done.status.success() {
            Ok(text(&done.stdout))
        } else {
            Err(TestingError::Failed { program, output: text(&done.stdout) + &text(&done.stderr) })
        }
    }

    /// Creates a directory that the user of Postgres can write.
    pub(super) fn make_directory(&self, path: &Path) -> Result<(), TestingError> {
        fs::create_dir_all(path).map_err(io(path.display().to_string()))?;
        if let Some((user, group)) = self.run_as {
            let owned = chown(path, Some(user), Some(group));
            owned.map_err(|error| io(path.display().to_string())(error.into()))?;
        }
        Ok(())
    }
}
