use std::{
    path::{Path, PathBuf},
    process::Command,
};

use domain::ids::{ExecutionId, JobId};
use schemas::manifest::Manifest;
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::{
    plugins::{Cancel, JobContext, Registry, testing::TestSink},
    state::KnownState,
};

/// Repository on disk that the git configuration reads as `https://git.example.com/acme/app`.
struct Remote {
    dir: TempDir,
    /// Environment of the build job.
    env: BTreeMap<String, String>,
}

impl Remote {
    fn new() -> Remote {
        let remote = Remote { dir: tempfile::tempdir().unwrap(), env: BTreeMap::new() };
        remote.git(&["init", "--quiet", "--initial-branch", "main"]);
        let text = format!(
            "[url \"file://{}\"]\n  insteadOf = https://git.example.com/acme/app\n",
            remote.path().display()
        );
        fs::write(remote.configuration(), text).unwrap();
        remote
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn configuration(&self) -> PathBuf {
        self.path().join(".git/reader")
    }

    fn git(&self, args: &[&str]) -> String {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=Test", "-c", "user.email=test@example.com"]).args(args);
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        let output = command.current_dir(self.path()).output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Commits a file and returns the commit.
    fn commit(&self, path: &str, text: &str) -> String {
        fs::write(self.path().join(path), text).unwrap();
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", "Change files"]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// Fetches a commit like a build. Returns the text of `main.tf`.
    async fn fetch(&self, reference: &str, commit: &str) -> Result<String, Halt> {
        self.fetch_with(reference, commit, Cancel::default()).await
    }

    async fn fetch_with(
        &self,
        reference: &str,
        commit: &str,
        cancel: Cancel,
    ) -> Result<String, Halt> {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("work")).unwrap();
        let job = context(root.path(), &self.configuration(), cancel);
        let job = JobContext { env: self.env.clone(), ..job };
        let git = json!({
            "repo": "https://git.example.com/acme/app", "directory": ".",
            "ref": reference, "commit": commit,
        });
        let manifest: Manifest = serde_json::from_value(json!({
            "version": 1, "job": job.job, "kind": "build", "class": "pure",
            "plugin": {"name": "terraform", "version": "1"},
            "inputs": {"component": "web", "git": git},
            "env": {}, "role": "build",
            "limits": {"output_bytes": 1}, "timeouts": {"deadline_ms": 60000, "grace_ms": 1000},
        }))
        .unwrap();
        let work = Work::new(&manifest, &job).unwrap();
        super::fetch(&work, &mut TestSink::default()).await?;
        Ok(fs::read_to_string(work.root.join("main.tf")).unwrap())
    }
}

fn context(root: &Path, configuration: &Path, cancel: Cancel) -> JobContext {
    // The first test of the process installs the TLS provider.
    let _first = rustls::crypto::ring::default_provider().install_default();
    let (base_url, token, http) = (String::new(), String::new(), reqwest::Client::new());
    let git_env = [("GIT_CONFIG_GLOBAL".to_owned(), configuration.display().to_string())];
    JobContext {
        work_dir: root.join("work"),
        state_dir: root.join("state"),
        artifacts_dir: root.join("artifacts"),
        plugin_dir: root.join("plugins"),
        plans_dir: root.join("plans"),
        env: BTreeMap::new(),
        git_env: git_env.into(),
        kubeconfig_allows: Default::default(),
        background: std::sync::Arc::new(crate::plugins::contract::NoShim),
        sandbox: None,
        cancel,
        registry: Registry {
            base_url,
            token,
            http,
            idle_timeout: Registry::IDLE_TIMEOUT,
            observer: None,
        },
        images: Default::default(),
        job: JobId(ulid::Ulid::nil()),
        execution: ExecutionId(ulid::Ulid::nil()),
        rules: None,
        known_state: KnownState::default(),
        known_states: Default::default(),
        state: None,
        state_port: None,
        manifest_digest: format!("sha256:{:064x}", 1).parse().unwrap(),
        unfilled_inputs: None,
    }
}

#[tokio::test]
async fn a_reference_of_the_manifest_is_never_an_option() {
    let remote = Remote::new();
    let commit = remote.commit("main.tf", "one");
    let touched = remote.path().join("touched");
    let option = format!("--upload-pack=touch${{IFS}}{}", touched.display());
    for reference in [option.as_str(), "-u", "main:refs/heads/x", "../main", ""] {
        let Err(Halt::Error(PluginError::Refused(why))) = remote.fetch(reference, &commit).await
        else {
            panic!("{reference} was accepted");
        };
        assert!(why.contains("cannot fetch the ref"), "{why}");
    }
    assert!(!touched.exists());
}

#[tokio::test]
async fn a_server_without_partial_fetches_and_ids_sends_an_old_commit() {
    let remote = Remote::new();
    let first = remote.commit("main.tf", "one");
    let second = remote.commit("main.tf", "two");
    remote.git(&["config", "uploadpack.allowFilter", "false"]);
    remote.git(&["config", "uploadpack.allowAnySHA1InWant", "false"]);
    for (reference, commit, expected) in
        [("main", &second, "two"), ("main", &first, "one"), (first.as_str(), &first, "one")]
    {
        let fetched = remote.fetch(reference, commit).await;
        assert_eq!(fetched.unwrap(), expected, "{reference} {commit}");
    }
}

#[tokio::test]
async fn a_branch_and_a_tag_of_one_name_have_their_own_commits() {
    let remote = Remote::new();
    let tagged = remote.commit("main.tf", "tag");
    remote.git(&["tag", "--annotate", "--message", "one", "v1"]);
    let branch = remote.commit("main.tf", "branch");
    remote.git(&["branch", "v1"]);
    remote.git(&["config", "uploadpack.allowFilter", "false"]);
    assert_eq!(remote.fetch("v1", &branch).await.unwrap(), "branch");
    assert_eq!(remote.fetch("refs/tags/v1", &tagged).await.unwrap(), "tag");
}

#[tokio::test]
async fn a_commit_that_is_gone_and_an_unreachable_server_are_errors() {
    let remote = Remote::new();
    remote.commit("main.tf", "one");
    let gone = "1".repeat(40);
    let Err(Halt::Outcome(outcome)) = remote.fetch("main", &gone).await else {
        panic!("the commit was found");
    };
    assert!(format!("{outcome:?}").contains("not our ref"), "{outcome:?}");
    fs::rename(remote.path().join(".git/objects"), remote.path().join(".git/gone")).unwrap();
    let Err(Halt::Outcome(outcome)) = remote.fetch("main", &gone).await else {
        panic!("the repository was found");
    };
    assert!(format!("{outcome:?}").contains("does not appear to be a git repository"));
}

#[tokio::test]
async fn a_cancelled_fetch_ends_as_cancelled() {
    let remote = Remote::new();
    let commit = remote.commit("main.tf", "one");
    let cancel = Cancel::default();
    cancel.requested.cancel();
    let fetched = remote.fetch_with("main", &commit, cancel).await;
    let outcome = crate::plugins::Outcome::Cancelled { forced: false };
    assert!(matches!(fetched, Err(Halt::Outcome(ref one)) if *one == outcome), "{fetched:?}");
}

#[tokio::test]
async fn an_overlong_link_fails_the_fetch() {
    let remote = Remote::new();
    remote.commit("main.tf", "one");
    fs::write(remote.path().join("long"), "x".repeat(5000)).unwrap();
    let id = remote.git(&["hash-object", "-w", "long"]);
    fs::remove_file(remote.path().join("long")).unwrap();
    remote.git(&["update-index", "--add", "--cacheinfo", &format!("120000,{id},link")]);
    remote.git(&["commit", "--quiet", "--message", "Add a link"]);
    let commit = remote.git(&["rev-parse", "HEAD"]);
    let Err(Halt::Outcome(outcome)) = remote.fetch("main", &commit).await else {
        panic!("the link was accepted");
    };
    assert!(format!("{outcome:?}").contains("longer than 4096 bytes"), "{outcome:?}");
}

/// Git before version 2.44 ignores `GIT_NO_LAZY_FETCH`, and fetches a missing object when a command asks
/// for it.
#[tokio::test]
async fn the_files_of_a_component_are_fetched_together_even_by_an_older_git() {
    let mut remote = Remote::new();
    for setting in ["uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"] {
        remote.git(&["config", setting, "true"]);
    }
    for file in 0..20 {
        fs::write(remote.path().join(format!("{file}.txt")), format!("file {file}")).unwrap();
    }
    let commit = remote.commit("main.tf", "one");
    let trace = remote.path().join(".git/trace");
    let (bin, path) = (remote.path().join(".git/bin"), std::env::var("PATH").unwrap());
    fs::create_dir(&bin).unwrap();
    let script = format!(
        "#!/bin/sh\nunset GIT_NO_LAZY_FETCH\nPATH='{path}'\nGIT_TRACE='{}' exec git \"$@\"\n",
        trace.display()
    );
    fs::write(bin.join("git"), script).unwrap();
    fs::set_permissions(bin.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
    remote.env = [("PATH".to_owned(), format!("{}:{path}", bin.display()))].into();

    assert_eq!(remote.fetch("main", &commit).await.unwrap(), "one");

    let trace = fs::read_to_string(trace).unwrap();
    let fetches = trace.lines().filter(|line| line.contains("built-in: git fetch")).count();
    // The commit, the file that may have references, and all other files.
    assert_eq!(fetches, 3, "{trace}");
}

/// Pointer of git LFS to seven bytes with the digest of `content`.
const POINTER: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:\
    ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73\nsize 7\n";

#[tokio::test]
async fn the_content_of_a_file_in_lfs_is_fetched_and_verified() {
    let mut remote = Remote::new();
    let commit = remote.commit("main.tf", POINTER);
    let tools = tempfile::tempdir().unwrap();
    let program = tools.path().join("git-lfs");
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", tools.path().display());
    remote.env.insert("PATH".into(), path);
    for (output, expected) in [("content", true), ("another", false), ("a longer one", false)] {
        let script = format!(
            "#!/bin/sh\n[ \"$1 $GIT_LFS_SKIP_SMUDGE\" = \"smudge 0\" ] || exit 9\ncat >/dev/null\nprintf %s '{output}'\n"
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        match remote.fetch("main", &commit).await {
            Ok(text) => assert!(expected && text == output, "{output}"),
            Err(halt) => {
                let why = format!("{halt:?}");
                assert!(!expected && why.contains("differs from the pointer"), "{why}");
            }
        }
    }
}
