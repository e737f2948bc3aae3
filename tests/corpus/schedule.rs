//! Runs each app in its own process, and prints the results.
use std::{
    fs::{self, File},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    sync::{Condvar, Mutex},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{Args, app::App, installed};

/// Time between the limit of an app, which the app observes itself, and its end by signals.
const GRACE: Duration = Duration::from_secs(120);

/// Apps that wait for a free slot. At most one app uses the cluster.
struct Queue {
    waiting: Vec<(String, bool)>,
    is_cluster_used: bool,
}

pub(crate) fn all(args: &Args) -> ExitCode {
    let names = match names(args) {
        Ok(names) => names,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    let work = tempfile::Builder::new().prefix("stead-corpus-").tempdir().unwrap();
    // The private Postgres runs as another user.
    fs::set_permissions(work.path(), fs::Permissions::from_mode(0o755)).unwrap();
    installed::install(work.path());
    fs::create_dir_all(&args.logs).unwrap();
    let is_on_cluster =
        |name: &String| App::read(&args.apps.join(name), &Value::Null).needs_cluster();
    let waiting = names.iter().map(|name| (name.clone(), is_on_cluster(name))).collect();
    let queue = (Mutex::new(Queue { waiting, is_cluster_used: false }), Condvar::new());
    let results = Mutex::new(vec![]);
    println!("{:32} {:>6}  result", "app", "time");
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.clamp(1, names.len().max(1)) {
            scope.spawn(|| {
                while let Some((name, on_cluster)) = next(&queue) {
                    let index = names.iter().position(|one| *one == name).unwrap_or_default();
                    let result = run(args, &name, &work.path().join(format!("{index:02}")));
                    println!("{}", line(&result));
                    results.lock().unwrap().push(result);
                    if on_cluster {
                        queue.0.lock().unwrap().is_cluster_used = false;
                        queue.1.notify_all();
                    }
                }
            });
        }
    });
    if args.keep {
        println!("working directories: {}", work.keep().display());
    }
    finish(args, results.into_inner().unwrap())
}

/// Returns the names of the apps to run.
fn names(args: &Args) -> Result<Vec<String>, String> {
    for dir in [&args.apps, &args.repos] {
        if !dir.is_dir() {
            return Err(format!("{} is not a directory; set --apps and --repos", dir.display()));
        }
    }
    let has_app = |name: &String| args.apps.join(name).join("metadata.toml").is_file();
    if let Some(missing) = args.names.iter().find(|name| !has_app(name)) {
        return Err(format!("{} has no app {missing}", args.apps.display()));
    }
    if !args.names.is_empty() {
        return Ok(args.names.clone());
    }
    let entries = fs::read_dir(&args.apps).map_err(|error| error.to_string())?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(has_app).collect();
    names.sort();
    Ok(names)
}

/// Takes the next app whose cluster is free. Returns none after the last app.
fn next((queue, changed): &(Mutex<Queue>, Condvar)) -> Option<(String, bool)> {
    let mut queue = queue.lock().unwrap();
    loop {
        let is_used = queue.is_cluster_used;
        let found = queue.waiting.iter().position(|(_, on_cluster)| !on_cluster || !is_used);
        if let Some(index) = found {
            let taken = queue.waiting.remove(index);
            queue.is_cluster_used |= taken.1;
            return Some(taken);
        }
        if queue.waiting.is_empty() {
            return None;
        }
        queue = changed.wait(queue).unwrap();
    }
}

/// Runs one app, and returns its report.
fn run(args: &Args, name: &str, work: &Path) -> Value {
    fs::create_dir_all(work).unwrap();
    let (started, log) = (Instant::now(), work.join("log"));
    let file = File::create(&log).unwrap();
    let mut command = Command::new(installed::corpus(work.parent().unwrap()));
    command.arg("--apps").arg(&args.apps).arg("--repos").arg(&args.repos);
    command.arg("--logs").arg(&args.logs).args(["--timeout", &args.timeout.to_string()]);
    if args.keep {
        command.arg("--keep");
    }
    command.arg("--one").arg(work).arg(name).env("TMPDIR", work);
    command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).process_group(0);
    match args.verbose {
        true => command.stderr(Stdio::inherit()),
        false => command.stderr(file),
    };
    let mut child = command.spawn().unwrap();
    let limit = Duration::from_secs(args.timeout) + GRACE;
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > limit {
            stop(&mut child);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let report = fs::read(work.join("report.json")).ok();
    let report = report.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let report = report.unwrap_or_else(|| {
        let detail = "the process of the app ended without a report";
        json!({"app": name, "result": "failed", "detail": detail, "substitutions": [],
               "seconds": started.elapsed().as_secs_f64()})
    });
    if report["result"] == "failed" {
        let dir = args.logs.join(name);
        let _made = fs::create_dir_all(&dir);
        let _copied = fs::copy(&log, dir.join("log"));
    }
    if !args.keep {
        let _removed = fs::remove_dir_all(work);
    }
    report
}

/// Stops an app with its server and its runners, which are in its process group.
fn stop(child: &mut Child) {
    let group = format!("-{}", child.id());
    for signal in ["-TERM", "-KILL"] {
        let _sent = Command::new("kill").args([signal, "--", &group]).status();
        std::thread::sleep(Duration::from_secs(10));
    }
}

/// Returns the line of an app.
fn line(report: &Value) -> String {
    let text = |key: &str| report[key].as_str().unwrap_or_default();
    let list = report["substitutions"].as_array().into_iter().flatten();
    let substitutions: Vec<&str> = list.filter_map(Value::as_str).collect();
    let result = match (text("result"), substitutions.is_empty()) {
        ("up", true) => "up".into(),
        ("up", false) => format!("up with substitutions: {}", substitutions.join("; ")),
        ("waits", _) => format!("waits for {}", text("detail")),
        _ => format!("FAILED: {}", text("detail")),
    };
    format!("{:32} {:5.0}s  {result}", text("app"), report["seconds"].as_f64().unwrap_or_default())
}

/// Prints the numbers of each result, and writes the results.
fn finish(args: &Args, mut results: Vec<Value>) -> ExitCode {
    results.sort_by_key(|report| report["app"].as_str().unwrap_or_default().to_owned());
    let count = |result: &str| results.iter().filter(|one| one["result"] == result).count();
    let (up, waits, failed) = (count("up"), count("waits"), count("failed"));
    println!("{} apps: {up} up, {waits} wait, {failed} failed", results.len());
    if failed > 0 {
        println!("logs: {}", args.logs.display());
    }
    if let Some(file) = &args.results {
        fs::write(file, format!("{:#}\n", Value::Array(results))).unwrap();
    }
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
