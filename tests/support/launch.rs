//! Start of the programs next to a test: empty standard input, and output to a file.
use std::{
    ffi::OsStr,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// Command line of a program, the same at every start.
#[derive(Debug)]
pub(crate) struct Launch {
    args: Vec<String>,
    environment: Vec<(String, String)>,
    log: PathBuf,
}

impl Launch {
    /// Prepares this program. A start appends to the log of earlier starts.
    pub(crate) fn new(program: &Path, log: PathBuf) -> Launch {
        Launch { args: vec![program.display().to_string()], environment: vec![], log }
    }

    /// Sets a command that runs the program, for example to switch the user.
    pub(crate) fn through(&mut self, args: &[String]) {
        self.args.splice(0..0, args.iter().cloned());
    }

    pub(crate) fn with<W: AsRef<OsStr>>(&mut self, args: impl IntoIterator<Item = W>) {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_str().unwrap().into()));
    }

    pub(crate) fn env(&mut self, name: &str, value: &str) {
        self.environment.push((name.into(), value.into()));
    }

    /// Starts the program with further arguments.
    pub(crate) fn start<W: AsRef<OsStr>>(&self, more: &[W]) -> Child {
        let log = File::options().create(true).append(true).open(&self.log).unwrap();
        Command::new(&self.args[0])
            .args(&self.args[1..])
            .args(more)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{:?}: {error}", self.args))
    }

    /// Returns the output so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}
