//! Tests of the shim as a real process: its files, the environment of its child, and its end.
use std::{
    cell::{Cell, RefCell},
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use domain::{
    ids::{ExecutionId, JobId},
    isolation::IsolationLevel,
};
use runner_agent::{
    data::{self, Data, JobDir},
    host::{self, Process},
    isolation::{self, Choice, Trial},
    journal::{self, JournalEvent},
    policy::Policy,
    shim::order::{CancelOrder, JobLimits, ShimOrder, StopCause},
    tls::Trust,
};
use schemas::runner::{
    FailureReason, Finished, JobKind, LogRecord, LogStream, Outcome, Report, ReportBody,
};
use serde_json::{Value, json};

/// Declares each of these tests again, with the job in a sandbox.
macro_rules! also_in_sandbox {
    ($($test:ident),* $(,)?) => {
        mod in_sandbox {
            $(
                #[test]
                fn $test() {
                    crate::shim::in_sandbox(super::$test);
                }
            )*
        }
    };
}

mod descendants;
mod hostile;
mod limits;
mod mount;
mod redaction;
mod sandbox;

also_in_sandbox!(
    a_child_gets_only_the_environment_of_its_job,
    a_value_is_redacted_in_outputs_and_in_other_spellings,
    a_value_is_redacted_after_a_script_registered_it,
    a_shim_leads_its_own_session_and_records_its_process,
    a_cancel_sends_the_stop_signal_first,
    a_cancel_that_cannot_be_read_stops_the_job,
    a_passed_deadline_and_missing_output_end_a_child,
    a_step_at_its_timeout_gets_its_grace_period,
    the_exit_code_of_a_child_is_reported,
);

thread_local! {
    /// Isolation of the jobs of the test on this thread.
    static ISOLATION: RefCell<Choice> = RefCell::default();
    /// Limits of those jobs.
    static LIMITS: Cell<JobLimits> = Cell::default();
    /// First directories of their search path.
    static SEARCHED: RefCell<Vec<PathBuf>> = RefCell::default();
}

/// Returns the isolation of a sandbox, as the runner chooses it. On a host that does not support one,
/// reports the test as skipped.
fn sandbox_or_skip() -> Option<Choice> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("policy.toml");
    fs::write(&file, "version = 1\nisolation = \"sandbox\"\n").unwrap();
    let policy = Policy::read(&file).unwrap();
    let trial =
        Trial { runner: env!("CARGO_BIN_EXE_stead-runner").into(), dir: dir.path().to_owned() };
    // A test may have a runtime of its own.
    let choosing = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(isolation::choose(&policy, JobKind::Action, &trial))
    });
    match choosing.join().unwrap() {
        Ok(choice) => Some(choice),
        Err(refusal) => {
            skip(&format!("needs bubblewrap and passt: {refusal}"));
            None
        }
    }
}

/// Runs a test whose jobs run in a sandbox.
fn in_sandbox(test: fn()) {
    if let Some(choice) = sandbox_or_skip() {
        ISOLATION.set(choice);
        test();
    }
}

const CANARY: &str = "canary-7f3a9c";
const PASSED: &str = "passed/secret value";

struct Run {
    _dir: tempfile::TempDir,
    data: Data,
    files: JobDir,
    shim: Child,
}

/// Reports a test that cannot run. Under CI that is a failure.
fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "CI must be able to run every test: {why}");
    eprintln!("SKIPPED: {why}");
}

fn ids() -> (JobId, ExecutionId) {
    let id = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    (format!("job_{id}").parse().unwrap(), format!("exe_{id}").parse().unwrap())
}

/// Starts a shim that runs this script with this deadline.
fn start(script: &str, deadline: Duration, change: impl FnOnce(&mut Value)) -> Run {
    start_as(script, deadline, change, |_| Command::new(env!("CARGO_BIN_EXE_stead-runner")))
}

/// Starts a shim with a data directory below this path.
fn start_in(below: &str, script: &str) -> Run {
    let program = |_: &Data| Command::new(env!("CARGO_BIN_EXE_stead-runner"));
    begin(below, script, MINUTE, |_| {}, program)
}

/// Starts a shim with another program, which is chosen after the data directory exists.
fn start_as(
    script: &str,
    deadline: Duration,
    change: impl FnOnce(&mut Value),
    program: impl FnOnce(&Data) -> Command,
) -> Run {
    begin("runner", script, deadline, change, program)
}

fn begin(
    below: &str,
    script: &str,
    deadline: Duration,
    change: impl FnOnce(&mut Value),
    program: impl FnOnce(&Data) -> Command,
) -> Run {
    let (job, execution) = ids();
    let mut searched = SEARCHED.with_borrow(Vec::clone);
    searched.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
    let mut manifest = json!({
        "version": 1, "job": job, "kind": "action", "class": "unsafe",
        "plugin": {"name": "action", "version": "1"},
        "inputs": {"action": "test", "trigger": "manual",
            "steps": [{"name": "only", "inline_contents": format!("#!/bin/sh\n{script}\n")}]},
        "env": {"FROM_MANIFEST": "yes"},
        "limits": {"output_bytes": 67_108_864}, "timeouts": {"deadline_ms": 60_000, "grace_ms": 500},
    });
    change(&mut manifest);
    let manifest = manifest.to_string();
    let order = ShimOrder {
        isolation: ISOLATION.with_borrow(Choice::clone),
        kubeconfig_allows: Default::default(),
        limits: LIMITS.get(),
        manifest_digest: proof::digest_text(&proof::sha256(manifest.as_bytes())).parse().unwrap(),
        manifest,
        server: "http://127.0.0.1:9".into(),
        trust: Trust::Public,
        job_token: "job-token-1234567890".into(),
        git_env: Default::default(),
        deadline_uptime_ms: host::uptime_ms() + deadline.as_millis() as u64,
        max_grace_ms: 10_000,
        pass_env: [("PASSED".to_owned(), PASSED.to_owned())].into(),
        path: std::env::join_paths(searched).unwrap().into_string().unwrap(),
        plugin_dir: "/nonexistent".into(),
        images: Default::default(),
        values: Default::default(),
        state: None,
    };
    let dir = tempfile::tempdir().unwrap();
    let data = Data::open(&dir.path().join(below)).unwrap();
    let files = data.job(execution);
    files.create().unwrap();
    let mut shim = program(&data)
        .args(["shim", "--data"])
        .arg(data.root())
        .args(["--job", &job.to_string(), "--execution", &execution.to_string()])
        .env("RUNNER_OWN_SECRET", CANARY)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = shim.stdin.take().unwrap();
    pipe.write_all(&serde_json::to_vec(&order).unwrap()).unwrap();
    drop(pipe);
    Run { _dir: dir, data, files, shim }
}

impl Run {
    fn records(&self) -> Vec<LogRecord> {
        let text = fs::read_to_string(self.files.log()).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    fn lines(&self) -> Vec<String> {
        let is_output = |record: &LogRecord| record.s != LogStream::Shim;
        self.records().into_iter().filter(is_output).map(|record| record.m).collect()
    }

    fn reports(&self) -> Vec<Report> {
        let text = fs::read_to_string(self.files.reports()).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn until(&self, what: &str, holds: impl Fn(&Run) -> bool) {
        let begun = Instant::now();
        while !holds(self) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{what}: {:?}", self.records());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn end(&mut self) -> Finished {
        assert!(self.shim.wait().unwrap().success());
        let reports = self.reports();
        let numbers: Vec<_> = reports.iter().map(|report| report.seq).collect();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
        let Some(Report { body: ReportBody::Finished(last), .. }) = reports.last().cloned() else {
            panic!("no final report: {reports:?}");
        };
        let log = fs::read(self.files.log()).unwrap();
        assert_eq!(log.len() as u64, last.log_len);
        assert_eq!(hex::encode(proof::sha256(&log)), last.log_sha256);
        last
    }

    /// Returns the contents of all files in the data directory.
    fn all_files(&self) -> String {
        let found = Command::new("grep").args(["-rha", ""]).arg(self.data.root()).output().unwrap();
        String::from_utf8_lossy(&found.stdout).into_owned()
    }
}

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_child_gets_only_the_environment_of_its_job() {
    let mut run = start("env; echo to-stderr >&2; printf 'no newline'", MINUTE, |_| {});
    let last = run.end();
    assert_eq!((last.outcome, last.exit_code), (Outcome::Succeeded, Some(0)));
    let lines = run.lines();
    let has = |line: &str| lines.iter().any(|found| found == line);
    assert!(has("FROM_MANIFEST=yes") && has("to-stderr") && has("no newline"), "{lines:?}");
    assert!(has(&format!("STEAD_EXECUTION={}", ids().1)) && has("PASSED=[redacted]"), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("RUNNER_OWN_SECRET")));
    let everything = run.all_files();
    for secret in [CANARY, PASSED, "job-token-1234567890"] {
        assert!(!everything.contains(secret), "{secret} was left on the disk");
    }
}

#[test]
fn a_value_is_redacted_in_outputs_and_in_other_spellings() {
    let script = r#"printf '%s' "$PASSED" | base64
        printf '{"secret":"%s","plain":"fine"}' "$PASSED" > "$STEAD_OUTPUT_FILE""#;
    let mut run = start(script, MINUTE, |_| {});
    assert_eq!(run.end().outcome, Outcome::Succeeded);
    let outputs = run.reports().into_iter().find_map(|report| {
        if let ReportBody::Outputs { outputs, .. } = report.body { Some(outputs) } else { None }
    });
    let outputs = outputs.unwrap();
    assert_eq!(outputs["plain"], "fine");
    assert_eq!(outputs["secret"], "[redacted]");
    assert!(run.lines()[0].contains("[redacted]"), "{:?}", run.lines());
}

#[test]
fn the_name_of_a_phase_is_redacted_in_the_log_too() {
    let mut run = start("echo here", MINUTE, |manifest| {
        manifest["inputs"]["steps"][0]["name"] = json!(format!("connect with {PASSED} to it"));
    });
    assert_eq!(run.end().outcome, Outcome::Succeeded, "{:?}", run.records());
    let phases: Vec<_> = run.records().into_iter().filter_map(|record| record.p).collect();
    assert!(phases.contains(&"connect with [redacted] to it".to_owned()), "{phases:?}");
    assert!(!run.all_files().contains(PASSED));
}

#[test]
fn a_long_detail_is_truncated_in_a_report() {
    let mut run = start("exit 3", MINUTE, |manifest| {
        manifest["inputs"]["steps"][0]["name"] = json!("long ".repeat(20_000));
    });
    let last = run.end();
    assert_eq!(last.exit_code, Some(3));
    for report in run.reports() {
        let length = serde_json::to_vec(&report).unwrap().len();
        assert!(length < 8 * 1024, "{length} bytes");
    }
}

#[test]
fn a_shim_that_cannot_write_its_log_reports_that_nothing_started() {
    let (job, execution) = ids();
    let dir = tempfile::tempdir().unwrap();
    let data = Data::open(dir.path()).unwrap();
    let files = data.job(execution);
    files.create().unwrap();
    // A directory in place of the log has the effect of a full disk.
    fs::create_dir(files.log()).unwrap();
    let mut shim = Command::new(env!("CARGO_BIN_EXE_stead-runner"))
        .args(["shim", "--data"])
        .arg(data.root())
        .args(["--job", &job.to_string(), "--execution", &execution.to_string()])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    assert!(!shim.wait().unwrap().success());
    let events = journal::read(&data.path("journal.ndjson")).unwrap();
    let JournalEvent::Exited { exit, .. } = &events.last().unwrap().event else {
        panic!("{events:?}")
    };
    assert_eq!(exit.reason, Some(FailureReason::SpawnFailed));
    assert!(!files.reports().exists());
}

#[test]
fn a_value_is_redacted_after_a_script_registered_it() {
    let script = r#"value=born-$((40 + 2))-here
        printf '%s' "$value" | "$STEAD_RUNNER" redact && echo "it is $value""#;
    let mut run = start(script, MINUTE, |_| {});
    assert_eq!(run.end().outcome, Outcome::Succeeded, "{:?}", run.records());
    assert_eq!(run.lines(), ["it is [redacted]"]);
    assert!(!run.all_files().contains("born-42-here"));
}

#[test]
fn a_shim_leads_its_own_session_and_records_its_process() {
    let mut run = start("sleep 1", MINUTE, |_| {});
    let journal = run.data.path("journal.ndjson");
    run.until("the shim reports its start", |run| !run.reports().is_empty());
    let stat = fs::read_to_string(format!("/proc/{}/stat", run.shim.id())).unwrap();
    let session = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(3).unwrap();
    assert_eq!(session, run.shim.id().to_string());
    run.end();
    let events: Vec<_> = journal::read(&journal).unwrap().into_iter().map(|e| e.event).collect();
    let is = |matches_event: &dyn Fn(&JournalEvent) -> bool| {
        events.iter().position(matches_event).unwrap()
    };
    let spawned = is(
        &|event| matches!(event, JournalEvent::Spawned { process, .. } if process.pid == run.shim.id()),
    );
    let child = is(&|event| matches!(event, JournalEvent::ChildStarted { .. }));
    let exited = is(&|event| matches!(event, JournalEvent::Exited { .. }));
    assert!(spawned < child && child < exited);
}

fn ready(run: &Run) {
    run.until("the child runs", |run| run.lines().iter().any(|line| line == "ready"));
}

fn cancel(run: &Run, grace_ms: u64) {
    let order =
        CancelOrder { reason: "enough".into(), grace_ms: Some(grace_ms), cause: StopCause::Cancel };
    data::replace_json(&run.files.cancel(), &order).unwrap();
}

#[test]
fn a_cancel_sends_the_stop_signal_first() {
    let mut run =
        start("trap 'echo saved; exit 3' TERM; echo ready; sleep 30 & wait", MINUTE, |_| {});
    ready(&run);
    cancel(&run, 5_000);
    let last = run.end();
    assert_eq!((last.outcome, last.forced), (Outcome::Cancelled, false));
    assert!(run.lines().iter().any(|line| line == "saved"));
}

#[test]
fn a_cancel_that_cannot_be_read_stops_the_job() {
    let mut run =
        start("trap 'echo saved; exit 3' TERM; echo ready; sleep 30 & wait", MINUTE, |_| {});
    ready(&run);
    data::replace(&run.files.cancel(), b"{\"reason\": \"eno").unwrap();
    let last = run.end();
    assert_eq!((last.outcome, last.reason), (Outcome::Failed, Some(FailureReason::AgentStopped)));
    assert!(run.lines().iter().any(|line| line == "saved"), "{:?}", run.records());
    let why = run.records().into_iter().find(|record| record.m.contains("cancel.json"));
    assert!(why.is_some_and(|why| why.m.contains("cannot read")), "{:?}", run.records());
}

#[test]
fn a_child_that_ignores_the_stop_signal_is_killed_with_its_descendants() {
    let script = "trap '' TERM; sleep 61 & echo $!; echo ready; wait; wait; sleep 62";
    let mut run = start(script, MINUTE, |_| {});
    ready(&run);
    let grandchild = run.lines()[0].parse().unwrap();
    let grandchild = Process::of(grandchild).unwrap();
    cancel(&run, 300);
    let last = run.end();
    assert_eq!((last.outcome, last.forced), (Outcome::Cancelled, true));
    run.until("the grandchild has ended", |_| !grandchild.is_alive().unwrap());
}

#[test]
fn a_passed_deadline_and_missing_output_end_a_child() {
    let mut past_deadline = start("sleep 30", Duration::from_millis(700), |_| {});
    let mut silent = start("sleep 30", MINUTE, |manifest| {
        manifest["timeouts"]["no_output_ms"] = json!(700);
    });
    for (run, why) in [(&mut past_deadline, "deadline"), (&mut silent, "no output")] {
        let last = run.end();
        assert_eq!((last.outcome, last.reason), (Outcome::Failed, Some(FailureReason::TimedOut)));
        assert!(last.detail.contains(why), "{}", last.detail);
    }
}

#[test]
fn a_step_at_its_timeout_gets_its_grace_period() {
    let script = "trap 'echo saved; exit 0' TERM; echo ready; sleep 30 & wait";
    let mut run = start(script, MINUTE, |manifest| {
        manifest["inputs"]["steps"][0]["timeout_ms"] = json!(1_500);
        manifest["timeouts"]["grace_ms"] = json!(10_000);
    });
    let last = run.end();
    assert_eq!((last.outcome, last.reason), (Outcome::Failed, Some(FailureReason::TimedOut)));
    assert!(run.lines().iter().any(|line| line == "saved"), "{:?}", run.records());
}

/// Locks the journal for longer than a writer waits. The second step must not start, and no running
/// program may be killed.
#[test]
fn a_locked_journal_prevents_the_next_start_and_ends_no_running_program() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let [first, go, second] = ["first", "go", "second"].map(at);
    let wait =
        format!("touch {}; until [ -e {} ]; do sleep 0.05; done", first.display(), go.display());
    let begin = format!("touch {}; sleep 30", second.display());
    let mut run = start(&wait, MINUTE, |manifest| {
        let step = json!({"name": "second", "inline_contents": format!("#!/bin/sh\n{begin}\n")});
        manifest["inputs"]["steps"].as_array_mut().unwrap().push(step);
    });
    run.until("the first step runs", |_| first.exists());
    let lock = fs::File::open(run.data.path("journal.lock")).unwrap();
    lock.lock().unwrap();
    fs::write(&go, "").unwrap();
    let reported =
        |run: &Run| run.records().iter().any(|record| record.m.contains("recorded in the journal"));
    run.until("the second step is not started", reported);
    drop(lock);
    let last = run.end();
    assert_eq!(last.outcome, Outcome::Failed);
    assert!(
        last.detail.contains("its process cannot be recorded in the journal"),
        "{}",
        last.detail
    );
    assert!(!second.exists(), "a program ran that the journal does not know");
}

#[test]
fn missing_launch_parameters_are_reported_as_a_failed_start() {
    let (job, execution) = ids();
    let dir = tempfile::tempdir().unwrap();
    let data = Data::open(dir.path()).unwrap();
    let files = data.job(execution);
    files.create().unwrap();
    let shim = Command::new(env!("CARGO_BIN_EXE_stead-runner"))
        .args(["shim", "--data"])
        .arg(data.root())
        .args(["--job", &job.to_string(), "--execution", &execution.to_string()])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let last = Run { _dir: dir, data, files, shim }.end();
    assert_eq!(last.reason, Some(FailureReason::SpawnFailed));
}

#[test]
fn the_exit_code_of_a_child_is_reported() {
    let mut run = start("echo out; exit 7", MINUTE, |_| {});
    let last = run.end();
    assert_eq!((last.outcome, last.exit_code), (Outcome::Failed, Some(7)));
    assert_eq!(last.reason, Some(FailureReason::ExitCode));
    assert!(fs::read_dir(run.files.work()).is_err(), "the work directory is gone");
}
