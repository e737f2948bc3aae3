//! Tests of jobs in a sandbox: their signals, files and network, and what they report.
use std::{
    io::Read as _,
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::unix::fs::{PermissionsExt as _, chown},
};

use domain::isolation::{Isolation, Protection};
use runner_agent::isolation::JobNetwork;

use super::*;

fn start_sandboxed(script: &str, change: impl FnOnce(&mut Value)) -> Option<Run> {
    ISOLATION.set(sandbox_or_skip()?);
    Some(start(script, MINUTE, change))
}

/// Returns what a sandbox with a network of its own does not enforce for the user of the tests.
fn of_user() -> Vec<Protection> {
    if nix::unistd::geteuid().is_root() { vec![Protection::Files] } else { Vec::new() }
}

fn isolation(run: &Run) -> Isolation {
    let started = run.reports().into_iter().find_map(|report| {
        if let ReportBody::Started { isolation } = report.body { isolation } else { None }
    });
    started.unwrap()
}

#[test]
fn the_level_is_in_the_report_the_log_and_the_journal() {
    let Some(mut run) = start_sandboxed("true", |_| {}) else { return };
    assert_eq!(run.end().outcome, Outcome::Succeeded, "{:?}", run.records());
    let expected = Isolation { level: IsolationLevel::Sandbox, not_enforced: of_user() };
    assert_eq!(isolation(&run), expected);
    let line = format!("isolation: {}", expected.text());
    assert!(run.records().iter().any(|record| record.m == line));
    let journal = journal::read(&run.data.path("journal.ndjson")).unwrap();
    let is_recorded = |event: &JournalEvent| matches!(event, JournalEvent::Isolated { isolation, .. } if *isolation == expected);
    assert!(journal.iter().any(|entry| is_recorded(&entry.event)), "{journal:?}");
    // A job without a sandbox reports what that means.
    ISOLATION.take();
    let mut run = start("true", MINUTE, |_| {});
    run.end();
    assert_eq!(isolation(&run).not_enforced, Protection::ALL);
}

#[test]
fn a_program_has_its_own_processes_and_no_capability() {
    let script = r#"grep -h CapEff /proc/self/status; ls -d /proc/[0-9]* | wc -l; hostname"#;
    let Some(mut run) = start_sandboxed(script, |_| {}) else { return };
    assert_eq!(run.end().outcome, Outcome::Succeeded, "{:?}", run.records());
    let lines = run.lines();
    assert_eq!(lines[0], "CapEff:\t0000000000000000");
    assert!(lines[1].parse::<u32>().unwrap() < 10, "{lines:?}");
    assert_eq!(lines[2], "stead-job");
}

#[test]
fn a_program_cannot_create_a_user_namespace() {
    let Some(choice) = sandbox_or_skip() else { return };
    let script = "if unshare --user true 2>/dev/null; then echo created; else echo refused; fi";
    let mut run = start(script, MINUTE, |_| {});
    assert_eq!(run.end().outcome, Outcome::Succeeded, "{:?}", run.records());
    // Without a sandbox it can, on the same host.
    assert_eq!(run.lines(), ["created"]);
    ISOLATION.set(choice);
    let mut run = start(script, MINUTE, |_| {});
    assert_eq!(run.end().outcome, Outcome::Succeeded, "{:?}", run.records());
    assert_eq!(run.lines(), ["refused"]);
}

#[test]
fn pasta_ends_with_a_shim_that_is_killed() {
    let Some(mut run) = start_sandboxed("echo ready; sleep 60", |_| {}) else { return };
    ready(&run);
    let pasta = child_of_shim(&run, "--config-net");
    let program = child_of_shim(&run, "--unshare-user");
    run.shim.kill().unwrap();
    run.shim.wait().unwrap();
    // The agent would end the program.
    kill_now(&program);
    // A process that has ended but is not reaped has no command line.
    let lives = || fs::read(format!("/proc/{pasta}/cmdline")).is_ok_and(|line| !line.is_empty());
    let until = std::time::Instant::now() + MINUTE;
    while lives() {
        assert!(std::time::Instant::now() < until, "pasta outlived the shim");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_signal_that_ended_a_program_is_reported() {
    let Some(mut run) = start_sandboxed("kill -9 $$", |_| {}) else { return };
    let last = run.end();
    assert_eq!((last.reason, last.signal), (Some(FailureReason::Signal), Some(9)));
    assert_eq!(last.exit_code, None);
}

#[test]
fn an_exit_code_above_128_is_not_a_signal() {
    for code in [129, 137, 255] {
        let Some(mut run) = start_sandboxed(&format!("exit {code}"), |_| {}) else { return };
        let last = run.end();
        assert_eq!((last.exit_code, last.signal), (Some(code), None), "{:?}", run.records());
    }
}

#[test]
fn a_sandbox_that_fails_before_its_program_is_not_a_failure_of_the_program() {
    let Some(choice) = sandbox_or_skip() else { return };
    ISOLATION.set(Choice { bwrap: Some("/bin/false".into()), ..choice });
    let mut run = start("echo ran", MINUTE, |_| {});
    let last = run.end();
    assert_eq!((last.outcome, last.reason), (Outcome::Failed, Some(FailureReason::SpawnFailed)));
    assert_eq!((last.exit_code, last.signal), (None, None));
    assert_eq!(run.lines(), Vec::<String>::new());
}

fn child_of_shim(run: &Run, pattern: &str) -> String {
    let shim = run.shim.id().to_string();
    let found = Command::new("pgrep").args(["-P", &shim, "-f", "--", pattern]).output().unwrap();
    let pid = String::from_utf8(found.stdout).unwrap().trim().to_owned();
    assert!(pid.parse::<u32>().is_ok(), "{pattern} is not one child of the shim: {pid:?}");
    pid
}

fn kill_now(pid: &str) {
    assert!(Command::new("kill").args(["-KILL", pid]).status().unwrap().success());
}

#[test]
fn a_job_whose_sandbox_is_killed_fails_and_leaves_nothing_behind() {
    let Some(mut run) = start_sandboxed("echo ready; sleep 6172", |_| {}) else { return };
    ready(&run);
    kill_now(&child_of_shim(&run, "--unshare-user"));
    let last = run.end();
    assert_eq!((last.outcome, last.signal), (Outcome::Failed, Some(9)), "{:?}", run.records());
    assert_eq!(last.not_ended, Vec::<String>::new());
    let left = Command::new("pgrep").args(["-f", "sleep 6172"]).output().unwrap();
    assert!(left.stdout.is_empty(), "a program outlived its sandbox");
}

#[test]
fn a_job_whose_network_is_killed_starts_no_further_program() {
    let Some(mut run) = start_sandboxed("echo ready; sleep 1", |manifest| {
        let second = json!({"name": "second", "inline_contents": "#!/bin/sh\necho second\n"});
        manifest["inputs"]["steps"].as_array_mut().unwrap().push(second);
    }) else {
        return;
    };
    ready(&run);
    kill_now(&child_of_shim(&run, "sandbox-network"));
    let last = run.end();
    assert_eq!((last.outcome, last.reason), (Outcome::Failed, Some(FailureReason::SpawnFailed)));
    assert!(!run.lines().contains(&"second".to_owned()), "{:?}", run.records());
}

#[test]
fn a_network_that_cannot_be_created_is_not_reported_as_isolation() {
    let Some(choice) = sandbox_or_skip() else { return };
    ISOLATION.set(Choice { pasta: Some("/bin/false".into()), ..choice });
    let mut run = start("echo ran", MINUTE, |_| {});
    let last = run.end();
    assert_eq!((last.outcome, last.reason), (Outcome::Failed, Some(FailureReason::SpawnFailed)));
    assert!(last.detail.contains("network of the job"), "{}", last.detail);
    let started = run.reports().into_iter().map(|report| report.body).next().unwrap();
    assert!(matches!(started, ReportBody::Started { isolation: None }), "{started:?}");
    assert_eq!(run.lines(), Vec::<String>::new());
}

#[test]
fn a_path_of_the_policy_that_does_not_exist_is_named() {
    let Some(choice) = sandbox_or_skip() else { return };
    ISOLATION.set(Choice { read: vec!["/usr/stead-none".into()], ..choice });
    let mut run = start("echo ran", MINUTE, |_| {});
    let last = run.end();
    assert!(last.detail.contains("cannot show /usr/stead-none"), "{}", last.detail);
}

/// A second SIGINT would make Terraform abort. The signal must arrive once, although the sandbox
/// has several processes.
#[test]
fn a_stop_signal_arrives_once_and_the_work_is_saved() {
    let script = r#"trap 'echo signal' TERM; echo ready
        for turn in 1 2 3 4 5 6 7 8 9 10; do sleep 0.3; done; echo saved"#;
    let Some(mut run) = start_sandboxed(script, |manifest| {
        manifest["timeouts"]["grace_ms"] = json!(20_000);
    }) else {
        return;
    };
    ready(&run);
    cancel(&run, 20_000);
    assert!(!run.end().forced, "{:?}", run.records());
    // The shell reports the end of its own child, which received the signal, too.
    let lines: Vec<_> = run.lines().into_iter().filter(|line| line != "Terminated").collect();
    assert_eq!(lines, ["ready", "signal", "saved"]);
}

#[test]
fn a_program_gets_its_grace_period_although_the_shell_that_runs_it_has_ended() {
    let Some(choice) = sandbox_or_skip() else { return };
    let kept = tempfile::tempdir().unwrap();
    ISOLATION.set(Choice { write: vec![kept.path().to_owned()], ..choice });
    let save =
        r#"trap "sleep 1; echo saved > $0; exit" TERM; echo ready; while :; do sleep 0.1; done"#;
    let script = format!("sh -c '{save}' {}/saved; true", kept.path().display());
    let mut run = start(&script, MINUTE, |manifest| {
        manifest["timeouts"]["grace_ms"] = json!(20_000);
    });
    ready(&run);
    cancel(&run, 20_000);
    let last = run.end();
    assert_eq!((last.outcome, last.forced), (Outcome::Cancelled, false), "{:?}", run.records());
    assert_eq!(fs::read_to_string(kept.path().join("saved")).unwrap(), "saved\n");
}

#[test]
fn a_detached_process_ends_with_the_program_that_started_it() {
    let script = "setsid sleep 6173 & sleep 0.2; echo done";
    let Some(mut run) = start_sandboxed(script, |_| {}) else { return };
    assert_eq!(run.end().outcome, Outcome::Succeeded, "{:?}", run.records());
    let found = Command::new("pgrep").args(["-f", "sleep 6173"]).output().unwrap();
    assert!(found.stdout.is_empty(), "{}", String::from_utf8_lossy(&found.stdout));
}

#[test]
fn the_policy_shows_further_paths() {
    let Some(choice) = sandbox_or_skip() else { return };
    let (shown, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(shown.path().join("file"), "from the host").unwrap();
    let (read, write) = (vec![shown.path().to_owned()], vec![cache.path().to_owned()]);
    ISOLATION.set(Choice { read, write, ..choice });
    let (shown, cache) = (shown.path().display(), cache.path().display());
    let script = format!(
        "cat {shown}/file; touch {shown}/new 2>/dev/null || echo ' read-only'; echo kept > {cache}/new"
    );
    let mut run = start(&script, MINUTE, |_| {});
    assert_eq!(run.end().outcome, Outcome::Succeeded, "{:?}", run.records());
    assert_eq!(run.lines(), ["from the host read-only"]);
    assert_eq!(fs::read_to_string(format!("{cache}/new")).unwrap(), "kept\n");
    // The vendor reads the log, but not the journal.
    let expected = format!("writes {cache}");
    let journal = journal::read(&run.data.path("journal.ndjson")).unwrap();
    let names = |event: &JournalEvent| matches!(event, JournalEvent::Isolated { note, .. } if note.contains(&expected));
    assert!(journal.iter().any(|entry| names(&entry.event)), "{journal:?}");
    assert!(!run.records().iter().any(|record| record.m.contains("writes")));
}

#[test]
fn without_pasta_the_network_is_shared_and_reported() {
    let Some(choice) = sandbox_or_skip() else { return };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    ISOLATION.set(Choice { pasta: None, why: "passt is not installed".into(), ..choice });
    let script = format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' && echo connected");
    let mut run = start(&script, MINUTE, |_| {});
    assert_eq!(run.end().outcome, Outcome::Succeeded, "{:?}", run.records());
    assert_eq!(run.lines(), ["connected"]);
    let missing = [of_user(), vec![Protection::Network, Protection::Metadata]].concat();
    assert_eq!(isolation(&run).not_enforced, missing);
}

#[test]
fn a_port_of_the_policy_reaches_the_loopback_interface_of_the_host() {
    let Some(choice) = sandbox_or_skip() else { return };
    let listeners = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    let [open, closed] = listeners.each_ref().map(|one| one.local_addr().unwrap().port());
    ISOLATION.set(Choice { loopback: vec![open], ..choice });
    let reach = |port: u16| {
        format!(
            "if bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' 2>/dev/null; then echo yes; else echo no; fi;"
        )
    };
    let mut run = start(&(reach(open) + &reach(closed)), MINUTE, |_| {});
    assert_eq!(run.end().outcome, Outcome::Succeeded, "{:?}", run.records());
    assert_eq!(run.lines(), ["yes", "no"]);
}

/// Runs a job whose pasta is started by a shell script, with the command in `$@`.
fn with_pasta_through(script: &str, job: &str) -> Option<Run> {
    let choice = sandbox_or_skip()?;
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        skip("needs root, to prepare the start of pasta");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let (path, pasta) = (dir.path().join("pasta"), choice.pasta.clone().unwrap());
    fs::write(&path, format!("#!/bin/sh\nPASTA={}\n{script}\n", pasta.display())).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    ISOLATION.set(Choice { pasta: Some(path), ..choice });
    let mut run = start(job, MINUTE, |_| {});
    assert_eq!(run.end().outcome, Outcome::Succeeded, "{:?}", run.records());
    Some(run)
}

/// The AppArmor profile of some distributions lets pasta write no file of the runner.
#[test]
fn pasta_needs_no_file_that_it_can_write() {
    let script = r#"exec unshare --mount sh -c '
        for dir in /tmp /var /root; do mount --bind $dir $dir && mount -o remount,bind,ro $dir || exit 9; done
        if touch /tmp/probe 2>/dev/null; then exit 9; fi
        exec "$0" "$@"' $PASTA "$@""#;
    let Some(run) = with_pasta_through(script, "echo ran") else { return };
    assert_eq!(run.lines(), ["ran"]);
}

/// Kernels with tunnels add interfaces such as `tunl0` to each new network.
#[test]
fn a_network_can_have_further_interfaces() {
    let script = r#"network=$(echo "$*" | sed -n 's#.*--netns \([^ ]*\).*#\1#p')
        nsenter --net=$network ip link add tunl0 type veth peer name sit0 || exit 9
        exec $PASTA "$@""#;
    let job = "ls /sys/class/net >/dev/null; cut -d: -f1 /proc/net/dev | tr -d ' '";
    let Some(run) = with_pasta_through(script, job) else { return };
    let found = run.lines();
    for name in ["tunl0", "sit0", "stead0"] {
        assert!(found.iter().any(|line| line == name), "{found:?}");
    }
}

#[test]
fn a_tool_behind_links_in_a_hidden_directory_runs() {
    let Some(choice) = sandbox_or_skip() else { return };
    // A sandbox hides this directory, wherever other files of tests are.
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let at = |path: &str| dir.path().join(path);
    fs::create_dir_all(at("tool/1.2/bin")).unwrap();
    fs::write(at("tool/1.2/config"), "").unwrap();
    fs::write(at("tool/1.2/bin/stead-tool"), "#!/bin/sh\necho from the tool\n").unwrap();
    fs::set_permissions(at("tool/1.2/bin/stead-tool"), fs::Permissions::from_mode(0o755)).unwrap();
    // The directory of the search path, and a program in another one, are behind several links.
    for (target, link) in [
        ("1.2".into(), "tool/current"),
        (at("tool/current/bin"), "linked"),
        (at("linked/stead-tool"), "tool/alias"),
    ] {
        std::os::unix::fs::symlink(target, at(link)).unwrap();
    }
    fs::create_dir(at("other")).unwrap();
    std::os::unix::fs::symlink(at("tool/alias"), at("other/stead-other")).unwrap();
    SEARCHED.set(vec![at("linked"), at("other")]);
    ISOLATION.set(Choice { read: vec![at("tool/current/config")], ..choice });
    // Each program of a job has a view of its own, with the same temporary files.
    let script = format!(
        "stead-tool && stead-other && test -e {} && test -x {} && echo found",
        at("tool/current/config").display(),
        at("tool/current/bin/stead-tool").display()
    );
    let mut run = start(&script, MINUTE, |manifest| {
        let again = json!({"name": "again", "command": "stead-other"});
        manifest["inputs"]["steps"].as_array_mut().unwrap().push(again);
    });
    assert_eq!(run.end().outcome, Outcome::Succeeded, "{:?}", run.records());
    let expected = ["from the tool", "from the tool", "found", "from the tool"];
    assert_eq!(run.lines(), expected);
}

/// The owner of a socket can remove it while the view is made.
#[test]
fn a_directory_with_a_socket_is_covered_and_nothing_is_written_to_it() {
    let Some(choice) = sandbox_or_skip() else { return };
    // A sandbox shows this directory, wherever the repository is.
    let Ok(dir) = tempfile::tempdir_in("/var/cache") else {
        return skip("needs root, to write /var/cache");
    };
    let own = dir.path().join("own");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("file"), "").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(own.join("socket")).unwrap();
    chown(&own, Some(65_534), Some(65_534)).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
    let script = format!("ls -A {0}; touch {0}/new 2>/dev/null || echo read-only", own.display());
    let names = || fs::read_dir(&own).unwrap().count();
    ISOLATION.set(choice.clone());
    let mut run = start(&script, MINUTE, |_| {});
    assert_eq!(run.end().outcome, Outcome::Succeeded, "{:?}", run.records());
    assert_eq!((run.lines(), names()), (vec!["read-only".to_owned()], 2));
    // The policy can show the directory with its socket.
    ISOLATION.set(Choice { read: vec![own.clone()], ..choice });
    let mut run = start(&script, MINUTE, |_| {});
    assert_eq!(run.end().outcome, Outcome::Succeeded, "{:?}", run.records());
    assert_eq!((run.lines().join(" "), names()), ("file socket read-only".into(), 2));
}

/// A service of the shim listens in the network of its job. No other job can connect.
#[tokio::test]
async fn a_listener_exists_only_in_the_network_of_its_job() {
    let Some(Choice { pasta: Some(pasta), .. }) = sandbox_or_skip() else { return };
    let runner = PathBuf::from(env!("CARGO_BIN_EXE_stead-runner"));
    let network = JobNetwork::create((&runner, &pasta), &[], &[]).await.unwrap();
    let listener = network.listen().unwrap();
    let port = listener.local_addr().unwrap().port();
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap_err();
    let mut client = Command::new(&runner)
        .args(["sandbox-enter", "--network", &network.holder().unwrap().to_string(), "--"])
        .args(["bash", "-c", &format!("exec 3<>/dev/tcp/127.0.0.1/{port}; echo hello >&3")])
        .spawn()
        .unwrap();
    let mut text = String::new();
    listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello\n");
    assert!(client.wait().unwrap().success());
    network.stop().await;
}

#[test]
fn a_user_without_root_runs_jobs_in_a_sandbox() {
    let Some(choice) = sandbox_or_skip() else { return };
    // Only root may open the tunnel device on some hosts, so this job shares the network.
    ISOLATION.set(Choice { pasta: None, ..choice });
    let (nobody, programs) = (65_534, tempfile::tempdir().unwrap());
    let runner = programs.path().join("stead-runner");
    fs::copy(env!("CARGO_BIN_EXE_stead-runner"), &runner).unwrap();
    for path in [programs.path(), &runner] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    if chown(&runner, Some(nobody), Some(nobody)).is_err() {
        return skip("needs root, to become another user");
    }
    let own = |data: &Data| {
        let top = data.root().parent().unwrap().to_owned();
        let all = Command::new("chown").args(["-R", "65534:65534"]).arg(&top).output().unwrap();
        assert!(all.status.success());
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&runner);
        command
    };
    let mut run =
        start_as("id -u; cat /etc/stead-none 2>/dev/null; echo $PASSED", MINUTE, |_| {}, own);
    assert_eq!(run.end().outcome, Outcome::Succeeded, "{:?}", run.records());
    assert_eq!(run.lines(), ["65534", "[redacted]"]);
}
