//! Runs the system's git in a bare repository of one job.
//!
//! Credentials, proxies and rewritten addresses come from the git configuration of the agent's
//! user. Hooks, templates, the system's configuration and prompts are off. Git accepts only
//! `https`, `ssh`, and the protocol of an address to which that configuration rewrites.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use domain::git::without_userinfo;
use nix::sys::signal::Signal;

use crate::plugins::{
    contract::{PluginError, Sink, Stream},
    plugin::{Halt, IoContext as _, Work},
    process::{self, ChildEnd, ChildSpec, Code},
};

/// Environment variables of the agent that git receives. They locate its configuration and keys, and
/// those of Helm and Docker.
const AGENT_VARIABLES: [&str; 18] = [
    "ALL_PROXY",
    "DOCKER_CONFIG",
    "GIT_CONFIG_GLOBAL",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_SSL_CAINFO",
    "HELM_CONFIG_HOME",
    "HELM_REGISTRY_CONFIG",
    "HELM_REPOSITORY_CONFIG",
    "HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "SSH_AUTH_SOCK",
    "XDG_CONFIG_HOME",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];
/// Maximum size of a file that git writes, in bytes: 2 GiB.
const FILE_LIMIT: u64 = 2 << 30;
/// Oldest supported version of git: the first one with `fetch --stdin`.
const MINIMUM: (u32, u32) = (2, 29);
/// Maximum output of git that the runner reads into memory, in bytes.
const OUTPUT_LIMIT: u64 = 64 << 20;
/// Maximum number of lines in an error message.
const MAX_LINES: usize = 4;
/// Maximum length of an error message in bytes.
const MAX_MESSAGE: usize = 1000;
/// Shell script that limits the file size of a program and redirects its input and output.
const SCRIPT: &str = r#"in=$1 out=$2; ulimit -f "$3" || exit 1; shift 3; exec "$@" <"$in" >"$out""#;
/// Git settings of every command.
const SETTINGS: [&str; 12] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "init.templateDir=",
    "gc.auto=0",
    "maintenance.auto=false",
    "credential.interactive=false",
    "fetch.writeCommitGraph=false",
    "protocol.version=2",
    "submodule.recurse=false",
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=60",
    "advice.defaultBranchName=false",
];

/// Returns the variables of the agent's environment for git.
pub(crate) fn agent_environment() -> BTreeMap<String, String> {
    let present = |name: &&str| Some(((*name).to_owned(), env::var(name).ok()?));
    AGENT_VARIABLES.iter().filter_map(present).collect()
}

/// Failure of a git command.
pub(super) enum GitError {
    /// Message of git, without credentials.
    Failed(String),
    Halt(Halt),
}

impl From<Halt> for GitError {
    fn from(halt: Halt) -> Self {
        GitError::Halt(halt)
    }
}

impl GitError {
    /// Adds a remedy to the message of git.
    pub(super) fn with_remedy(self, remedy: &str) -> GitError {
        match self {
            GitError::Failed(message) => GitError::Failed(format!("{message}; {remedy}")),
            GitError::Halt(halt) => GitError::Halt(halt),
        }
    }

    /// Converts the failure of a command into the failure of its job.
    pub(super) fn into_halt(self, what: &str) -> Halt {
        match self {
            GitError::Failed(message) => Halt::exit(1, format!("{what}: {message}")),
            GitError::Halt(halt) => halt,
        }
    }
}

/// Git with one bare repository.
pub(super) struct Git<'w, 'j> {
    work: &'w Work<'j>,
    program: PathBuf,
    directory: PathBuf,
    /// Address as in the config.
    url: String,
    /// Protocols that git may use, separated by colons.
    protocols: String,
    /// Maximum size of a file that the next commands write, in bytes.
    file_limit: u64,
}

impl<'w, 'j> Git<'w, 'j> {
    /// Creates a bare repository that fetches from an address.
    pub(super) async fn new(
        work: &'w Work<'j>,
        name: &str,
        url: &str,
        sink: &mut dyn Sink,
    ) -> Result<Self, Halt> {
        if !work.manifest.env.is_empty() {
            let refusal = "cannot run git: the manifest sets environment variables; the vendor must remove them";
            return Err(PluginError::Refused(refusal.into()).into());
        }
        let program = find(work)?;
        let directory = work.job.work_dir.join(name);
        let (url, protocols) = (url.to_owned(), "https:ssh".to_owned());
        let mut git = Git { work, program, directory, url, protocols, file_limit: FILE_LIMIT };
        git.check_version(sink).await?;
        let failed = |error: GitError| error.into_halt("cannot create a git repository");
        git.run(&["init", "--quiet", "--bare"], sink).await.map_err(failed)?;
        git.create_local_view().doing(|| "cannot create a git repository".into())?;
        let add = ["remote", "add", "--", "origin", &git.url.clone()];
        git.run(&add, sink).await.map_err(failed)?;
        // An `insteadOf` of the agent's configuration may select any protocol.
        let get = ["ls-remote", "--get-url", "origin"];
        let effective = git.output(&get, None, sink).await.map_err(failed)?;
        let effective = String::from_utf8_lossy(&effective).trim().to_owned();
        if effective != git.url {
            git.protocols = format!("{}:{}", git.protocols, protocol(&effective));
            let line = format!(
                "the git configuration of this runner rewrites {} to another address",
                git.url
            );
            sink.line(Stream::Runner, line.as_bytes());
        }
        Ok(git)
    }

    /// Creates a repository without remotes. Commands about objects use it with the objects of the
    /// fetched one: some versions of git fail at an object that a partial clone lacks, and others fetch
    /// it, one by one.
    fn create_local_view(&self) -> std::io::Result<()> {
        let view = self.local_view();
        fs::create_dir_all(view.join("refs"))?;
        fs::write(view.join("HEAD"), "ref: refs/heads/none\n")
    }

    fn local_view(&self) -> PathBuf {
        self.directory.join("stead-local")
    }

    /// Limits the files of the next commands to the disk space that the job may still use. A fetch
    /// writes its objects to one file, so it stops at the limit.
    pub(super) fn limit_files(&mut self, bytes: u64) {
        self.file_limit = bytes.min(FILE_LIMIT);
    }

    /// Checks that git supports the options of the fetches.
    async fn check_version(&self, sink: &mut dyn Sink) -> Result<(), Halt> {
        let output = self.directory.with_extension("version");
        let failed = |error: GitError| error.into_halt("cannot run git");
        self.execute(&["version"], None, &output, sink).await.map_err(failed)?;
        let text = fs::read_to_string(&output).doing(|| "cannot read the version of git".into())?;
        match version(&text) {
            Some(found) if found < MINIMUM => {
                let (found, (major, minor)) = (text.trim(), MINIMUM);
                Err(PluginError::ToolMissing(format!(
                    "cannot fetch from git: {found} on the PATH of this build runner is too old; install git \
                     {major}.{minor} or later"
                ))
                .into())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Returns true if a program is on the PATH of the job.
    pub(super) fn has_program(&self, name: &str) -> bool {
        find_program(self.work, name).is_some()
    }

    /// Returns true if the repository has commits without their history.
    pub(super) fn is_shallow(&self) -> bool {
        self.directory.join("shallow").exists()
    }

    /// Returns the size of the fetched objects in bytes. A server without git sends objects one by one,
    /// outside of packs.
    pub(super) fn size(&self) -> Result<u64, PluginError> {
        let what = || "cannot read the objects of the repository".to_owned();
        files_size(self.directory.join("objects")).doing(what)
    }

    /// Runs a command and writes its messages to the job log.
    pub(super) async fn run(&self, args: &[&str], sink: &mut dyn Sink) -> Result<(), GitError> {
        self.execute(args, None, Path::new("/dev/null"), sink).await
    }

    /// Returns the output of a command.
    pub(super) async fn output(
        &self,
        args: &[&str],
        input: Option<&[u8]>,
        sink: &mut dyn Sink,
    ) -> Result<Vec<u8>, GitError> {
        let file = self.output_file(args, input, sink).await?;
        let size = fs::metadata(&file).doing(|| "cannot read the output of git".into());
        if size.map_err(Halt::from)?.len() > OUTPUT_LIMIT {
            let message = format!(
                "the output of git exceeds the limit of {OUTPUT_LIMIT} bytes; use a smaller repository"
            );
            return Err(GitError::Failed(message));
        }
        let read = fs::read(&file).doing(|| "cannot read the output of git".into());
        Ok(read.map_err(Halt::from)?)
    }

    /// Runs a command and returns the file with its output. The next command overwrites the file.
    pub(super) async fn output_file(
        &self,
        args: &[&str],
        input: Option<&[u8]>,
        sink: &mut dyn Sink,
    ) -> Result<PathBuf, GitError> {
        let file = self.directory.join("stead-output");
        self.execute(args, input, &file, sink).await?;
        Ok(file)
    }

    async fn execute(
        &self,
        args: &[&str],
        input: Option<&[u8]>,
        output: &Path,
        sink: &mut dyn Sink,
    ) -> Result<(), GitError> {
        let mut from = PathBuf::from("/dev/null");
        if let Some(bytes) = input {
            from = self.directory.join("stead-input");
            let written = fs::write(&from, bytes).doing(|| "cannot write the input of git".into());
            written.map_err(Halt::from)?;
        }
        let mut words: Vec<OsString> = ["-c", SCRIPT, "git"].map(OsString::from).into();
        // `ulimit` counts blocks of 512 bytes.
        let blocks = (self.file_limit / 512).to_string();
        words.extend([from.into_os_string(), output.as_os_str().to_owned(), blocks.into()]);
        words.push(self.program.clone().into_os_string());
        for setting in SETTINGS {
            words.extend(["-c".into(), setting.into()]);
        }
        words.extend(args.iter().map(OsString::from));
        let spec = ChildSpec {
            program: "/bin/sh".into(),
            args: words,
            dir: self.work.job.work_dir.clone(),
            env: self.environment(args.first().copied()),
            stop: Signal::SIGTERM,
            limit: Some(Duration::from_secs(30 * 60)),
            code: Code::Host,
        };
        let mut message = Message::default();
        let ended = process::run(&spec, self.work, sink, |sink, stream, line| {
            if let Some(text) = message.add(line) {
                sink.line(stream, text.as_bytes());
            }
        });
        match ended.await? {
            ChildEnd::Exit(0) => Ok(()),
            ended @ ChildEnd::Exit(_) if message.lines.is_empty() => {
                Err(GitError::Halt(ended.into_failure("git")))
            }
            ChildEnd::Exit(_) => Err(GitError::Failed(message.text(self.file_limit))),
            ended @ (ChildEnd::Signal(_) | ChildEnd::TimedOut) => {
                Err(GitError::Halt(ended.into_failure("git")))
            }
        }
    }

    fn environment(&self, command: Option<&str>) -> BTreeMap<String, String> {
        let mut env = self.work.job.git_env.clone();
        let is_local = command == Some("cat-file");
        let directory = if is_local { &self.local_view() } else { &self.directory };
        let skip_lfs = if command == Some("lfs") { "0" } else { "1" };
        let own = [
            ("GIT_DIR", directory.display().to_string()),
            ("GIT_OBJECT_DIRECTORY", self.directory.join("objects").display().to_string()),
            ("GIT_ALLOW_PROTOCOL", self.protocols.clone()),
            ("GIT_CONFIG_NOSYSTEM", "1".into()),
            ("GIT_TERMINAL_PROMPT", "0".into()),
            ("GIT_NO_REPLACE_OBJECTS", "1".into()),
            ("GIT_NO_LAZY_FETCH", "1".into()),
            ("GIT_LFS_SKIP_SMUDGE", skip_lfs.into()),
            ("LC_ALL", "C".into()),
        ];
        env.extend(own.map(|(name, value)| (name.to_owned(), value)));
        env
    }
}

/// Returns the size of all files below a directory in bytes.
fn files_size(directory: PathBuf) -> std::io::Result<u64> {
    let (mut size, mut open) = (0_u64, vec![directory]);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            match metadata.is_dir() {
                true => open.push(entry.path()),
                false => size = size.saturating_add(metadata.len()),
            }
        }
    }
    Ok(size)
}

/// Last lines of git's messages.
#[derive(Default)]
struct Message {
    lines: Vec<String>,
}

impl Message {
    /// Adds a line and returns its text for the log. A progress line becomes its final state.
    fn add(&mut self, line: &[u8]) -> Option<String> {
        let text = String::from_utf8_lossy(line);
        let last = text.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default().trim();
        if last.is_empty() {
            return None;
        }
        let text = without_userinfo(last);
        let is_message = ["fatal:", "error:", "remote:", "ssh:", "Permission denied"]
            .iter()
            .any(|prefix| text.starts_with(prefix));
        let is_progress = text.ends_with(", done.") || text.contains("% (");
        if (is_message || self.lines.is_empty()) && !is_progress {
            self.lines.push(text.clone());
            let more = self.lines.len().saturating_sub(MAX_LINES);
            self.lines.drain(..more);
        }
        Some(text)
    }

    fn text(&self, file_limit: u64) -> String {
        let mut text = self.lines.join("; ");
        if text.contains("signal 25") {
            text += &format!(
                "; the objects exceed the limit of {file_limit} bytes; use a smaller repository, or pass a local \
                 copy: --source REPO=PATH"
            );
        }
        let end = (0..=MAX_MESSAGE.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or_default());
        text
    }
}

/// Returns major and minor version from the output of `git version`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim().strip_prefix("git version ")?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Returns the protocol of an address, as git names it.
fn protocol(url: &str) -> &str {
    if let Some((scheme, _)) = url.split_once("://") {
        return scheme;
    }
    if let Some((helper, _)) = url.split_once("::") {
        return helper;
    }
    let is_remote = url.split_once(':').is_some_and(|(host, _)| !host.contains('/'));
    if is_remote { "ssh" } else { "file" }
}

/// Finds git on the PATH of the job.
fn find(work: &Work<'_>) -> Result<PathBuf, Halt> {
    let missing = || {
        PluginError::ToolMissing(
            "cannot fetch from git: git is not on the PATH of this build runner; install git 2.29 or later".into(),
        )
    };
    Ok(find_program(work, "git").ok_or_else(missing)?)
}

fn find_program(work: &Work<'_>, name: &str) -> Option<PathBuf> {
    let environment = work.environment();
    let path = environment.get("PATH").map(String::as_str).unwrap_or_default();
    let directories = path.split(':').filter(|directory| directory.starts_with('/'));
    let is_program = |file: &PathBuf| {
        fs::metadata(file)
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let mut files = directories.map(|directory| Path::new(directory).join(name));
    files.find(is_program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_of_an_address_is_the_one_of_git() {
        for (url, expected) in [
            ("https://host/x", "https"),
            ("http://127.0.0.1:80/x", "http"),
            ("ext::sh -c x", "ext"),
            ("git@host:x/y", "ssh"),
            ("/srv/git/x", "file"),
            ("../x", "file"),
            ("file:///x", "file"),
        ] {
            assert_eq!(protocol(url), expected, "{url}");
        }
    }

    #[test]
    fn the_version_of_git_is_read_from_its_output() {
        assert_eq!(version("git version 2.39.5\n"), Some((2, 39)));
        assert_eq!(version("git version 2.20.1 (Apple Git-130)\n"), Some((2, 20)));
        assert_eq!(version("git version unknown\n"), None);
    }

    #[test]
    fn objects_outside_of_packs_have_a_size_too() {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [("pack/a.pack", "four"), ("ab/cd", "three"), ("info/packs", "")] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        assert_eq!(files_size(dir.path().to_owned()).unwrap(), 9);
    }

    #[test]
    fn a_message_has_no_progress_and_no_credential() {
        let mut message = Message::default();
        let shown =
            message.add(b"Receiving objects:  10% (1/9)\rReceiving objects: 100% (9/9), done.");
        assert_eq!(shown.as_deref(), Some("Receiving objects: 100% (9/9), done."));
        message.add(b"fatal: unable to access 'https://me:secret@host/x/': refused");
        assert_eq!(
            message.text(FILE_LIMIT),
            "fatal: unable to access 'https://***@host/x/': refused"
        );
    }
}
