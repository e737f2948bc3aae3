//! Benchmark of a build of one directory of a large git repository, compared with clones of the
//! repository.
//!
//! Builds and clones read the repository from one `git http-backend` on loopback. The time of a
//! build includes its job: claim, fetch, pack, push and report. The build runner has no Terraform,
//! so nothing validates the module.
use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use measure::Quantiles;
use serde_json::{Value, json};
use tests::{GitRepository, GitServer, Server, stdout_of, until_some};

use crate::{
    command_line::{BenchOptions, check_arguments},
    installs,
};

const FILES: usize = 20_000;
/// Number of files in a quick run.
const QUICK_FILES: usize = 2_000;
const FILES_PER_DIRECTORY: usize = 100;
/// Size of a file in bytes.
const FILE_BYTES: usize = 2_048;
/// Longest time of a build.
const BUILD_TIMEOUT: Duration = Duration::from_secs(300);
const REPOSITORY: &str = "acme/large";

const USAGE: &str = "stead-bench-git [--quick] [--json] [--rounds N]";

/// Operation that fetches the files, with its durations and the bytes that the server sent.
struct Operation {
    name: &'static str,
    times: Vec<Duration>,
    bytes: u64,
}

/// Runs `scripts/bench git`.
pub fn main() {
    check_arguments(USAGE);
    let options = BenchOptions::read();
    let git = GitServer::start();
    let repository = large_repository(&git, options.choose(QUICK_FILES, FILES));
    let configuration = git.configuration("");
    // A search path without Terraform, which would take most of the time.
    let environment =
        [("GIT_CONFIG_GLOBAL", configuration.to_str().unwrap()), ("PATH", "/usr/bin:/bin")];
    let server = Server::up_in(&environment);
    let app = app(server.dir());
    let mut operations = [
        Operation { name: "`git clone`", times: vec![], bytes: 0 },
        Operation { name: "`git clone --depth 1`", times: vec![], bytes: 0 },
        Operation { name: "build of one directory of 100 files", times: vec![], bytes: 0 },
    ];
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        // Without a new commit, the build would reuse the artifact of the last round.
        repository.commit("main", &[("d0/main.tf", &format!("# round {round}\n"))]);
        for (number, way) in operations.iter_mut().enumerate() {
            let sent = git.sent_bytes();
            way.times.push(match number {
                0 => clone(&git, server.dir(), &[]),
                1 => clone(&git, server.dir(), &["--depth", "1"]),
                _ => build(&server, &app),
            });
            way.bytes = git.sent_bytes() - sent;
        }
    }
    match options.json {
        true => println!("{:#}", json_of(operations)),
        false => println!("{}", markdown(operations)),
    }
}

fn large_repository(git: &GitServer, files: usize) -> GitRepository {
    let repository = git.repository(REPOSITORY);
    for number in 0..files {
        let directory = repository.dir().join(format!("d{}", number / FILES_PER_DIRECTORY));
        fs::create_dir_all(&directory).unwrap();
        let line = format!("{:x}\n", number * 2_654_435_761);
        let text = line.repeat(FILE_BYTES / line.len());
        fs::write(directory.join(format!("file-{number}.txt")), text).unwrap();
    }
    repository.commit_all("main");
    repository
}

fn app(dir: &Path) -> String {
    let app = dir.join("large");
    fs::create_dir_all(app.join("components")).unwrap();
    fs::write(app.join("metadata.toml"), "version = \"v2\"\n").unwrap();
    let text = format!(
        "name = \"one\"\ntype = \"terraform_module\"\n[public_repo]\nrepo = \"{REPOSITORY}\"\ndirectory = \"d0\"\n"
    );
    fs::write(app.join("components/one.toml"), text).unwrap();
    app.to_str().unwrap().into()
}

fn clone(git: &GitServer, dir: &Path, options: &[&str]) -> Duration {
    let into = dir.join("clone");
    let began = Instant::now();
    let mut command = Command::new("git");
    command.args(["clone", "--quiet"]).args(options).arg(git.url(REPOSITORY)).arg(&into);
    stdout_of(command.env("GIT_CONFIG_GLOBAL", "/dev/null"));
    let took = began.elapsed();
    fs::remove_dir_all(into).unwrap();
    took
}

/// Publishes the app with the newest commit. Returns the duration of the build job.
fn build(server: &Server, app: &str) -> Duration {
    let synced = server.cli_json(&["apps", "sync", app, "--resolve"]);
    let build = synced["builds"][0]["id"].as_str().unwrap();
    let build = until_some("the build", BUILD_TIMEOUT, || {
        let build = server.cli_json(&["builds", "show", build]);
        ["succeeded", "failed"].contains(&build["state"].as_str()?).then_some(build)
    });
    assert_eq!(build["state"], "succeeded", "{build:#}");
    installs::duration(server, &build["job"])
}

fn markdown(operations: [Operation; 3]) -> String {
    let mut text =
        "| operation | p50, ms | max, ms | from the server, KiB |\n|---|---|---|---|\n".to_owned();
    for Operation { name, times, bytes } in operations {
        let times = Quantiles::of(times);
        let kib = bytes / 1024;
        let _ = writeln!(text, "| {name} | {:.0} | {:.0} | {kib} |", times.p50, times.most);
    }
    format!("{}\n\n{text}", measure::machine())
}

fn json_of(operations: [Operation; 3]) -> Value {
    let operations = operations.into_iter().map(|Operation { name, times, bytes }| {
        json!({ "what": name, "times": Quantiles::of(times).json(), "bytes": bytes })
    });
    json!({ "machine": measure::machine(), "operations": operations.collect::<Vec<_>>() })
}
