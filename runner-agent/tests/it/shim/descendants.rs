//! Tests that every descendant of a job ends with the job, even outside the job's process group and
//! session.
use super::*;

/// Returns a script that starts a process in its own session, whose parents have ended, without the
/// job's environment.
fn detached(script: &str) -> String {
    format!("(env -i PATH=\"$PATH\" setsid sh -c '{script}' &)")
}

/// Script that prints the pid of its process and ignores the stop signals.
const STUBBORN: &str = r#"trap "" TERM INT HUP; echo $$; while :; do sleep 0.1; done"#;

fn first_pid(run: &Run) -> Process {
    run.until("the descendant runs", |run| !run.lines().is_empty());
    Process::of(run.lines()[0].parse().unwrap()).unwrap()
}

fn shim_logged(run: &Run, text: &str) -> bool {
    run.records().iter().any(|record| record.s == LogStream::Shim && record.m.contains(text))
}

#[test]
fn a_detached_process_ends_with_a_job_that_succeeded() {
    let script = format!(
        "{}; until [ -s \"$HOME/go\" ]; do sleep 0.1; done",
        detached("echo $$; exec sleep 611")
    );
    let mut run = start(&script, MINUTE, |_| {});
    let descendant = first_pid(&run);
    fs::write(run.files.work().join("home/go"), "go").unwrap();
    let last = run.end();
    assert_eq!((last.outcome, last.not_ended.len()), (Outcome::Succeeded, 0));
    assert!(!descendant.is_alive().unwrap(), "it outlived its job");
    assert!(
        shim_logged(&run, "ending remaining processes of the job: sleep (pid "),
        "{:?}",
        run.records()
    );
}

#[test]
fn a_detached_process_gets_the_grace_period_to_save_its_work() {
    let save =
        r#"trap "sleep 1; echo saved > $0; exit" TERM; echo $$; while :; do sleep 0.1; done"#;
    let dir = tempfile::tempdir().unwrap();
    let saved = dir.path().join("saved");
    let script = format!("(setsid sh -c '{save}' {} &); sleep 1", saved.display());
    let mut run = start(&script, MINUTE, |manifest| {
        manifest["timeouts"]["grace_ms"] = json!(20_000);
    });
    let descendant = first_pid(&run);
    assert_eq!(run.end().outcome, Outcome::Succeeded);
    assert!(!descendant.is_alive().unwrap());
    assert_eq!(fs::read_to_string(saved).unwrap(), "saved\n");
}

#[test]
fn a_program_gets_its_grace_period_although_the_shell_that_runs_it_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let saved = dir.path().join("saved");
    // The shell ends at the signal. The program that it waits for saves its work.
    let save =
        r#"trap "sleep 1; echo saved > $0; exit" TERM; echo ready; while :; do sleep 0.1; done"#;
    let script = format!("sh -c '{save}' {}; true", saved.display());
    let mut run = start(&script, MINUTE, |manifest| {
        manifest["timeouts"]["grace_ms"] = json!(20_000);
    });
    ready(&run);
    cancel(&run, 20_000);
    let last = run.end();
    assert_eq!((last.outcome, last.forced), (Outcome::Cancelled, false), "{:?}", run.records());
    assert_eq!(fs::read_to_string(saved).unwrap(), "saved\n");
}

fn stopped_by(cause: StopCause) -> Finished {
    let mut run = start(&format!("{}; sleep 62", detached(STUBBORN)), MINUTE, |_| {});
    let descendant = first_pid(&run);
    let order = CancelOrder { reason: "enough".into(), grace_ms: Some(300), cause };
    data::replace_json(&run.files.cancel(), &order).unwrap();
    let last = run.end();
    assert!(!descendant.is_alive().unwrap(), "it outlived its job");
    assert_eq!(last.not_ended, Vec::<String>::new());
    last
}

#[test]
fn a_detached_process_that_ignores_signals_is_killed_before_a_cancel_is_confirmed() {
    let last = stopped_by(StopCause::Cancel);
    assert_eq!((last.outcome, last.forced), (Outcome::Cancelled, true));
}

#[test]
fn a_detached_process_that_ignores_signals_is_killed_when_the_customer_stops_jobs() {
    assert_eq!(stopped_by(StopCause::AgentStop).reason, Some(FailureReason::AgentStopped));
}

#[test]
fn processes_that_start_others_while_they_are_killed_end_too() {
    // Each round starts a detached process, and the previous one ends.
    let chain =
        r#"trap "" TERM; [ "$1" = 400 ] && exit; sleep 0.01; setsid sh "$0" $(($1 + 1)) & exit"#;
    let script = format!(
        "printf '%s' '{chain}' > \"$HOME/chain\"; echo $$; (setsid sh \"$HOME/chain\" 0 &); sleep 0.5"
    );
    let mut run = start(&script, MINUTE, |manifest| {
        manifest["timeouts"]["grace_ms"] = json!(100);
    });
    let home = run.files.work().join("home");
    assert_eq!(run.end().not_ended, Vec::<String>::new());
    let found = Command::new("pgrep").arg("-f").arg(home.join("chain")).output().unwrap();
    assert!(found.stdout.is_empty(), "{}", String::from_utf8_lossy(&found.stdout));
}

/// `sudo` and similar programs start processes that the user cannot signal.
#[test]
fn a_process_that_cannot_be_ended_is_named_in_the_result() {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    let (dir, nobody) = (tempfile::tempdir().unwrap(), 65_534);
    let copy = |from: &str, mode: u32| {
        let to = dir.path().join(from.rsplit('/').next().unwrap());
        fs::copy(from, &to).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(mode)).unwrap();
        to
    };
    if chown(dir.path(), Some(nobody), Some(nobody)).is_err()
        || !fs::exists("/usr/bin/setpriv").unwrap()
    {
        return skip("needs root and setpriv, to start a process that this user cannot end");
    }
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (runner, setpriv) =
        (copy(env!("CARGO_BIN_EXE_stead-runner"), 0o755), copy("/usr/bin/setpriv", 0o4755));
    let root = format!("{} --reuid 0 sh -c \"echo \\$\\$; exec sleep 613\"", setpriv.display());
    let script = format!("(setsid {root} &); sleep 1");
    let mut run = start_as(
        &script,
        MINUTE,
        |_| {},
        |data| {
            let mut shim = Command::new("/usr/bin/setpriv");
            shim.args(["--reuid", "65534", "--clear-groups", "--"]).arg(&runner);
            let chowned = Command::new("chown").args(["-R", "65534"]).arg(data.root()).status();
            assert!(chowned.unwrap().success());
            let parent = data.root().parent().unwrap();
            fs::set_permissions(parent, fs::Permissions::from_mode(0o755)).unwrap();
            shim
        },
    );
    let last = run.end();
    let pid = run.lines()[0].clone();
    assert_eq!(last.not_ended, [format!("sleep (pid {pid})")], "{:?}", run.records());
    assert!(shim_logged(&run, "cannot end these processes: sleep"), "{:?}", run.records());
    assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
}
