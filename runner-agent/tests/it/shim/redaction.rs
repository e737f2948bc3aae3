//! Tests of values that scripts register for redaction: after an upgrade, and with output that is
//! withheld on a failure.
use super::{mount::Mount, *};

also_in_sandbox!(
    a_value_is_redacted_although_the_program_was_replaced_while_the_job_runs,
    values_are_redacted_with_a_long_data_directory_path,
);

/// Returns a copy of the program, which an upgrade can replace.
fn copy_program() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("stead-runner");
    fs::copy(env!("CARGO_BIN_EXE_stead-runner"), &program).unwrap();
    (dir, program)
}

/// Returns a script that first waits until the test has changed something.
fn after(change: &str, script: &str) -> String {
    format!("echo ready; until [ -e \"$HOME/go\" ]; do sleep 0.1; done; {change} {script}")
}

const REGISTER: &str = r#"value=born-$((40 + 2))-here
    printf '%s' "$value" | "$STEAD_RUNNER" redact; echo "status $?"; echo "it is $value"
    printf '{"value":"%s"}' "$value" > "$STEAD_OUTPUT_FILE""#;

fn go(run: &Run) {
    fs::write(run.files.work().join("home/go"), "").unwrap();
}

fn assert_withheld(run: &mut Run) {
    let last = run.end();
    assert_eq!(last.outcome, Outcome::Failed, "{:?}", run.records());
    assert!(last.detail.contains("withheld"), "{}", last.detail);
    assert!(!run.lines().iter().any(|line| line.contains("it is")), "{:?}", run.lines());
    // The script file and the output file were in the work directory, which is removed.
    assert!(!run.all_files().contains("born-42-here"), "the value was left on the disk");
    let is_withheld =
        |record: &LogRecord| record.s == LogStream::Shim && record.m.contains("is withheld");
    assert!(run.records().iter().any(is_withheld), "{:?}", run.records());
}

#[test]
fn a_value_is_redacted_although_the_program_was_replaced_while_the_job_runs() {
    for replaced in [true, false] {
        let (_dir, program) = copy_program();
        let path = program.clone();
        let script = after("", REGISTER);
        let mut run = start_as(&script, MINUTE, |_| {}, |_| Command::new(path));
        ready(&run);
        fs::remove_file(&program).unwrap();
        if replaced {
            fs::write(&program, "#!/bin/sh\nexit 0\n").unwrap();
        }
        go(&run);
        assert_eq!(run.end().outcome, Outcome::Succeeded, "{:?}", run.records());
        assert_eq!(run.lines(), ["ready", "status 0", "it is [redacted]"]);
    }
}

#[test]
fn a_shim_of_a_program_that_was_replaced_before_it_started_redacts_values() {
    let (dir, program) = copy_program();
    // The agent starts its shims from the running program. Here a shell removes the file of the
    // program and then starts the program.
    let script = format!(
        "exec 3< {program}; rm {program}; exec /proc/self/fd/3 \"$@\"",
        program = program.display()
    );
    let mut run = start_as(
        REGISTER,
        MINUTE,
        |_| {},
        |_| {
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", &script, "sh"]);
            shell
        },
    );
    assert_eq!(run.end().outcome, Outcome::Succeeded, "{:?}", run.records());
    assert_eq!(run.lines(), ["status 0", "it is [redacted]"]);
    assert!(!dir.path().join("stead-runner").exists());
}

#[test]
fn output_is_withheld_after_a_value_could_not_be_registered() {
    // Cases, in order: The socket is absent. The program `redact` is missing. The value is too
    // long. The value is too short. The value is not text. The value is an argument. The process is
    // killed before it reads the value. The process cannot open a file.
    let change = [
        r#"rm "$STEAD_REDACT_SOCKET";"#,
        r#"rm "$STEAD_RUNNER";"#,
        r#"head -c 65537 /dev/zero | tr "\\0" a | "$STEAD_RUNNER" redact;"#,
        r#"printf abc | "$STEAD_RUNNER" redact;"#,
        r#"printf "\\377\\376 no text" | "$STEAD_RUNNER" redact;"#,
        r#""$STEAD_RUNNER" redact "$STEAD_JOB";"#,
        r#"sleep 3 | timeout -s KILL 1 "$STEAD_RUNNER" redact;"#,
        r#"printf long-enough | sh -c "ulimit -n 4; exec \"\$STEAD_RUNNER\" redact";"#,
    ];
    for change in change {
        let mut run = start(&after(change, REGISTER), MINUTE, |_| {});
        ready(&run);
        go(&run);
        assert_withheld(&mut run);
    }
}

/// Runs the script with a tmpfs on the directory that `part` returns, mounted with these options.
fn start_on(
    options: &str,
    script: &str,
    part: impl FnOnce(&Data) -> std::path::PathBuf,
) -> Option<(Run, Mount)> {
    let mut mount = None;
    let run = start_as(
        script,
        MINUTE,
        |_| {},
        |data| {
            let at = part(data);
            fs::create_dir_all(&at).unwrap();
            mount = Mount::at(&at, options);
            Command::new(env!("CARGO_BIN_EXE_stead-runner"))
        },
    );
    Some((run, mount?))
}

#[test]
fn a_job_does_not_start_if_the_redact_program_cannot_run() {
    let Some((mut run, _mount)) = start_on("noexec", REGISTER, |data| data.path("bin")) else {
        return;
    };
    let last = run.end();
    assert_eq!((last.outcome, last.reason), (Outcome::Failed, Some(FailureReason::SpawnFailed)));
    for part in ["cannot start the job", "Permission denied", "without noexec"] {
        assert!(last.detail.contains(part), "{}", last.detail);
    }
    assert_eq!(run.lines(), Vec::<String>::new());
    assert!(!run.all_files().contains("born-42-here"));
}

#[test]
fn output_is_withheld_after_the_redact_program_cannot_run() {
    let script = after("", REGISTER);
    let Some((mut run, mount)) = start_on("exec", &script, |data| data.path("bin")) else { return };
    ready(&run);
    mount.again("noexec");
    go(&run);
    assert_withheld(&mut run);
}

#[test]
fn output_is_withheld_on_a_full_disk_too() {
    let elsewhere = tempfile::tempdir().unwrap();
    let go = elsewhere.path().join("go");
    let script = format!(
        "echo ready; until [ -e {} ]; do sleep 0.1; done
        value=born-$((40 + 2))-here
        printf abc | \"$STEAD_RUNNER\" redact; echo \"it is $value\"",
        go.display()
    );
    let job = |data: &Data| data.job(ids().1).root().to_owned();
    let Some((mut run, disk)) = start_on("size=64m,nr_inodes=64", &script, job) else { return };
    ready(&run);
    disk.fill();
    fs::write(go, "").unwrap();
    let last = run.end();
    assert!(last.detail.contains("withheld"), "{}", last.detail);
    assert!(!run.lines().iter().any(|line| line.contains("it is")), "{:?}", run.lines());
    assert!(!run.all_files().contains("born-42-here"), "the value was left on the disk");
}

#[test]
fn a_script_may_wait_for_its_value_longer_than_the_read_timeout() {
    let script = r#"value=born-$((40 + 2))-here
        { sleep 7; printf '%s' "$value"; } | "$STEAD_RUNNER" redact && echo "it is $value""#;
    let mut run = start(script, MINUTE, |_| {});
    assert_eq!(run.end().outcome, Outcome::Succeeded, "{:?}", run.records());
    assert_eq!(run.lines(), ["it is [redacted]"]);
}

#[test]
fn an_incomplete_value_withholds_the_output() {
    if !Command::new("python3").arg("--version").output().is_ok_and(|out| out.status.success()) {
        return skip("needs python3, to send half a value");
    }
    let half = r#"python3 -c "
import os, socket
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ['STEAD_REDACT_SOCKET'])
s.send((100).to_bytes(4, 'big') + b'half a value')
import time; time.sleep(6)
";"#;
    let mut run = start(&after(half, REGISTER), MINUTE, |_| {});
    ready(&run);
    go(&run);
    assert_withheld(&mut run);
}

#[test]
fn values_are_redacted_with_a_long_data_directory_path() {
    let mut run = start_in(&"long-name/".repeat(15), REGISTER);
    assert_eq!(run.end().outcome, Outcome::Succeeded, "{:?}", run.records());
    assert_eq!(run.lines(), ["status 0", "it is [redacted]"]);
}

#[test]
fn a_token_of_stead_is_redacted_anywhere_in_a_line() {
    let token = format!("stead_{}", "k3".repeat(21) + "A");
    let mut run =
        start(&format!("echo \"TOKEN={token}\"; echo '{{\"t\":\"{token}\"}}'"), MINUTE, |_| {});
    assert_eq!(run.end().outcome, Outcome::Succeeded);
    assert_eq!(run.lines(), ["TOKEN=[redacted]", r#"{"t":"[redacted]"}"#]);
}
