//! Server: `stead up` with a private Postgres and a build runner, or `stead serve` on a database.
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    Builder, Postgres,
    database::{self, Urls},
    launch::Launch,
    program, until_some,
};

/// Pseudo-variable in `environment`. Its value is an option of `prlimit`, which then starts the
/// server.
const FILES: &str = "limit of files";
/// Pseudo-variable in `environment`. Its value is the path of the server's program.
const PROGRAM: &str = "program of the server";

/// Running `stead up` or `stead serve`. Its drop deletes the data directory.
pub struct Server {
    dir: TempDir,
    child: Child,
    ready: Value,
    more: Vec<String>,
    /// URL of the server's database, unless the server has a private Postgres.
    database: Option<String>,
    environment: Vec<(String, String)>,
}

impl Server {
    /// Starts `stead up` in an empty data directory.
    pub fn up() -> Server {
        Server::up_with("127.0.0.1:0", &[])
    }

    /// Starts `stead up` with this address of the Runner API and with further options.
    pub fn up_with(runner: &str, more: &[&str]) -> Server {
        Server::start(directory(), None, runner, more)
    }

    /// Starts `stead up` with another program file, without a build runner.
    pub fn up_from(stead: &Path) -> Server {
        let program = (PROGRAM.to_string(), stead.display().to_string());
        let more = ["--no-build-runner"];
        Server::start_in(directory(), None, "127.0.0.1:0", &more, vec![program])
    }

    /// Starts `stead up` with further environment variables, which its build runner inherits.
    pub fn up_in(environment: &[(&str, &str)]) -> Server {
        let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        let environment = environment.iter().map(owned).collect();
        Server::start_in(directory(), None, "127.0.0.1:0", &[], environment)
    }

    /// Starts an installed `stead up`: with the build runner and the plugins beside this program, and
    /// with further options and environment variables.
    pub fn installed(stead: &Path, more: &[&str], environment: &[(&str, &str)]) -> Server {
        let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        let mut environment: Vec<_> = environment.iter().map(owned).collect();
        environment.push((PROGRAM.into(), stead.display().to_string()));
        Server::start_in(directory(), None, "127.0.0.1:0", more, environment)
    }

    /// Starts `stead up` with a soft and a hard limit of open files.
    pub fn with_files(soft: u32, hard: u32) -> Server {
        let limit = (FILES.to_string(), format!("--nofile={soft}:{hard}"));
        Server::start_in(directory(), None, "127.0.0.1:0", &[], vec![limit])
    }

    /// Runs `stead migrate` and `stead serve` on an empty database, with this address of the Runner
    /// API. It has no build runner until one is started.
    pub fn serve_with(runner: &str, more: &[&str]) -> Server {
        Server::serve(database::empty(), runner, more)
    }

    /// Runs `stead migrate` and `stead serve` on an empty database of this Postgres.
    pub fn serve_on(postgres: &Postgres, runner: &str, more: &[&str]) -> Server {
        Server::serve(postgres.empty(), runner, more)
    }

    fn serve(database: Urls, runner: &str, more: &[&str]) -> Server {
        let mut migrate = Command::new(program("stead"));
        crate::stdout_of(migrate.arg("migrate").env("DATABASE_OWNER_URL", database.owner));
        Server::start(directory(), Some(database.application), runner, more)
    }

    /// Starts a second `stead serve` on the same database, with its own keys.
    pub fn second(&self) -> Server {
        let database = Some(self.database().to_string());
        Server::start(directory(), database, "127.0.0.1:0", &[])
    }

    /// Starts `stead serve` on a migrated database, with further environment variables. It shares
    /// the keys and the registry of another server, as all servers behind one address do.
    pub fn beside(
        other: Option<&Server>,
        database: &str,
        more: &[&str],
        environment: &[(&str, &str)],
    ) -> Server {
        let dir = directory();
        if let Some(other) = other {
            fs::create_dir(dir.path().join("data")).unwrap();
            let (from, to) = (other.data().join("keys"), dir.path().join("data/keys"));
            crate::stdout_of(Command::new("cp").arg("-a").args([from, to]));
            // Artifacts are on a shared volume.
            let (from, to) = (other.data().join("registry"), dir.path().join("data/registry"));
            std::os::unix::fs::symlink(from, to).unwrap();
        }
        let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        let environment = environment.iter().map(owned).collect();
        Server::start_in(dir, Some(database.into()), "127.0.0.1:0", more, environment)
    }

    fn start(dir: TempDir, database: Option<String>, runner: &str, more: &[&str]) -> Server {
        Server::start_in(dir, database, runner, more, vec![])
    }

    fn start_in(
        dir: TempDir,
        database: Option<String>,
        runner: &str,
        more: &[&str],
        environment: Vec<(String, String)>,
    ) -> Server {
        let more: Vec<_> = more.iter().map(|arg| arg.to_string()).collect();
        let url = database.as_deref();
        let (child, ready) = start(dir.path(), url, "127.0.0.1:0", runner, &more, &environment);
        Server { dir, child, ready, more, database, environment }
    }

    /// Starts another build runner. It enrols with a token that the CLI created.
    pub fn build_runner(&self, more: &[&str]) -> Builder {
        self.build_runner_in(more, &[])
    }

    /// Starts another build runner with further environment variables.
    pub fn build_runner_in(&self, more: &[&str], environment: &[(&str, &str)]) -> Builder {
        let issued = self.cli_json(&["runners", "create-enrolment-token"]);
        let token = issued["enrolment"]["token"].as_str().unwrap();
        Builder::start(self, token, more, environment)
    }

    /// Returns a directory for the test's own files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the URL of the Control API.
    pub fn control(&self) -> &str {
        self.ready["control"].as_str().unwrap()
    }

    /// Returns the URL of the Runner API.
    pub fn runner(&self) -> &str {
        self.ready["runner"].as_str().unwrap()
    }

    /// Returns the key fingerprint in the enrol command.
    pub fn fingerprint(&self) -> &str {
        self.ready["fingerprint"].as_str().unwrap()
    }

    /// Returns the URL of the private database.
    pub fn database(&self) -> &str {
        self.ready["database"].as_str().unwrap()
    }

    /// Returns the URL of the server's database. Panics if the server has a private Postgres.
    pub fn database_url(&self) -> &str {
        self.database.as_deref().unwrap()
    }

    /// Returns the process id of the server.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the first owner's token.
    pub fn owner_token(&self) -> String {
        let file = self.ready["owner_token_file"].as_str().unwrap();
        fs::read_to_string(file).unwrap().trim().to_string()
    }

    /// Returns the data directory.
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Returns `stead` with the owner's token and JSON output.
    pub fn stead(&self) -> Command {
        let mut command = self.stead_for_people();
        command.args(["--output", "json"]);
        command
    }

    /// Returns `stead` with the owner's token and text output.
    pub fn stead_for_people(&self) -> Command {
        let mut command = Command::new(program("stead"));
        let token = self.ready["owner_token_file"].as_str().unwrap();
        command.args(["--server", self.control(), "--token-file", token]);
        command.env("NO_COLOR", "1").stdin(Stdio::null());
        command
    }

    /// Runs a `stead` command that must succeed, and returns its JSON output.
    #[track_caller]
    pub fn cli_json(&self, args: &[&str]) -> Value {
        let text = crate::stdout_of(self.stead().args(args));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}\n{text}"))
    }

    /// Runs a `stead` command that must fail, and returns the exit code and standard error.
    #[track_caller]
    pub fn refused(&self, args: &[&str]) -> (i32, String) {
        let output = self.stead_for_people().args(args).output().unwrap();
        assert!(!output.status.success(), "{args:?} was not refused");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap_or(-1), message)
    }

    /// Sends SIGTERM: the server stops its Postgres and its build runner, then itself.
    pub fn stop(&mut self) {
        let pid = self.child.id().to_string();
        crate::stdout_of(Command::new("kill").args(["-TERM", &pid]));
        self.child.wait().unwrap();
    }

    /// Sends SIGKILL to the server process alone. Postgres and runners continue.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts again with the same data directory and ports.
    pub fn restart(&mut self) {
        let address =
            |url: &str| url.split("://").nth(1).unwrap().trim_end_matches('/').to_string();
        let (control, runner) = (address(self.control()), address(self.runner()));
        let database = self.database.as_deref();
        let (more, environment) = (&self.more, &self.environment);
        let (child, ready) = start(self.dir.path(), database, &control, &runner, more, environment);
        self.child = child;
        self.ready = ready;
    }

    /// Stops, and starts again with other options.
    pub fn restart_with(&mut self, more: &[&str]) {
        self.stop();
        self.more = more.iter().map(ToString::to_string).collect();
        self.restart();
    }

    /// Returns the log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("server.log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        let _stopped = Command::new("kill").args(["-TERM", &pid]).status();
        let _ended = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the server's log ---\n{}", self.log());
        }
    }
}

fn start(
    dir: &Path,
    database: Option<&str>,
    control: &str,
    runner: &str,
    more: &[String],
    environment: &[(String, String)],
) -> (Child, Value) {
    let ready = dir.join("ready.json");
    let _may_be_missing = fs::remove_file(&ready);
    let (command, database) = match database {
        Some(url) => ("serve", Some(("DATABASE_URL", url))),
        None => ("up", None),
    };
    let chosen = environment.iter().find(|(name, _)| name == PROGRAM);
    let stead = chosen.map_or_else(|| program("stead"), |(_, path)| PathBuf::from(path));
    let mut launch = Launch::new(&stead, dir.join("server.log"));
    launch.with([command, "--control-listen", control, "--runner-listen", runner]);
    launch.with([Path::new("--data"), &dir.join("data"), Path::new("--ready-file"), &ready]);
    if let Some((name, url)) = database {
        launch.env(name, url);
    }
    for (name, value) in environment {
        match name.as_str() {
            FILES => launch.through(&["prlimit".into(), value.clone()]),
            PROGRAM => {}
            name => launch.env(name, value),
        }
    }
    let mut child = launch.start(more);
    let read = || serde_json::from_slice(&fs::read(&ready).ok()?).ok();
    let ready = until_some("the server", Duration::from_secs(60), || {
        if let Some(status) = child.try_wait().unwrap() {
            panic!("stead {command} ended with {status}\n{}", launch.log());
        }
        read()
    });
    (child, ready)
}

/// Returns a directory that the private Postgres and the customers can reach, although they run as
/// other users.
fn directory() -> TempDir {
    let dir = tempfile::Builder::new().prefix("stead-").tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}
