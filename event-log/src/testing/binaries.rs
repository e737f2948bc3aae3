//! Where Postgres is installed, and as whom to run it.
use std::{
    env, fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nix::unistd::{Gid, Uid, User, chown};

use super::{TestingError, io};

/// The directory of `initdb`, `pg_ctl`, `pgbench` and the rest, and who runs them.
#[derive(Debug, Clone)]
pub struct Binaries {
    directory: PathBuf,
    /// Somebody else, if we are root: Postgres refuses to run as root.
    run_as: Option<(Uid, Gid)>,
}

impl Binaries {
    /// Look in `STEAD_PG_BIN`, on `PATH` and where distributions put them, newest first.
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
        // A link on PATH leads to where the other programs are.
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

    /// A command of that program, run as whoever runs Postgres.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.directory.join(program));
        command.current_dir("/").stdin(Stdio::null());
        if let Some((user, group)) = self.run_as {
            command.uid(user.as_raw()).gid(group.as_raw());
        }
        command
    }

    /// Run a command to its end.
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

    /// Make a directory that whoever runs Postgres can write.
    pub(super) fn make_directory(&self, path: &Path) -> Result<(), TestingError> {
        fs::create_dir_all(path).map_err(io(path.display().to_string()))?;
        if let Some((user, group)) = self.run_as {
            let owned = chown(path, Some(user), Some(group));
            owned.map_err(|error| io(path.display().to_string())(error.into()))?;
        }
        Ok(())
    }
}
