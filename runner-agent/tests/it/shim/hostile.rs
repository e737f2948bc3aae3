//! A hostile job tries to reach more than its own, at each level. The results are a table in
//! `docs/security.md`.
//!
//! Each attempt must succeed at the level `process` as root, so that its target exists, and must
//! fail in a sandbox with an expected error.
mod attempts;

use std::{
    os::unix::{
        fs::{PermissionsExt as _, chown},
        net::UnixListener,
    },
    path::Path,
};

use runner_agent::policy;

use self::attempts::{ATTEMPTS, Enforced, HOST, PROGRAM};
use super::{limits::has_controllers, *};

/// User `nobody`.
const USER: u32 = 65_534;
const REACHED: &str = "reached";

/// Isolation and user of a column of the table.
struct Column {
    title: &'static str,
    choice: Choice,
    is_root: bool,
}

/// Directories of one run.
struct Place {
    /// Visible in a sandbox.
    visible: tempfile::TempDir,
    /// Home of the runner's user.
    home: tempfile::TempDir,
    programs: tempfile::TempDir,
    _socket: UnixListener,
    run_socket: PathBuf,
}

impl Place {
    fn new() -> Place {
        // A sandbox shows this directory, wherever the repository is.
        let shown = || tempfile::tempdir_in("/var/cache").unwrap();
        let (visible, home, programs) = (shown(), shown(), shown());
        fs::write(home.path().join("file"), "secret").unwrap();
        fs::write(visible.path().join("policy.toml"), "version = 1\n").unwrap();
        for dir in ["alias", "proc"] {
            fs::create_dir(visible.path().join(dir)).unwrap();
        }
        let run_socket = PathBuf::from(format!("/run/stead-hostile-{}", std::process::id()));
        let socket = UnixListener::bind(&run_socket).unwrap();
        fs::set_permissions(&run_socket, fs::Permissions::from_mode(0o666)).unwrap();
        let runner = programs.path().join("stead-runner");
        fs::copy(env!("CARGO_BIN_EXE_stead-runner"), &runner).unwrap();
        for path in [visible.path(), home.path(), programs.path(), &runner] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Place { visible, home, programs, _socket: socket, run_socket }
    }

    /// Gives the files to a user, as if the runner had made them.
    fn belongs_to(&self, user: u32) {
        for dir in [self.visible.path(), self.home.path()] {
            chown(dir, Some(user), Some(user)).unwrap();
        }
        for file in [self.visible.path().join("policy.toml"), self.home.path().join("file")] {
            chown(file, Some(user), Some(user)).unwrap();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _removed = fs::remove_file(&self.run_socket);
        let pids = fs::read_to_string(self.programs.path().join("pids")).unwrap_or_default();
        let _ended = Command::new("kill").arg("-KILL").args(pids.split_whitespace()).output();
    }
}

/// Files of the runner and of another job, which the job must not reach.
fn write_targets(data: &Data) -> UnixListener {
    for dir in ["keys", "jobs/other/work", "jobs/other/redact", "state/other"] {
        data::directory(&data.path(dir)).unwrap();
    }
    for file in ["keys/identity", "keys/install", "jobs/other/work/file"] {
        data::replace(&data.path(file), b"secret").unwrap();
    }
    data::replace(&data.path("state/other/terraform.tfstate"), br#"{"leak": "secret"}"#).unwrap();
    UnixListener::bind(data.path("jobs/other/redact/socket")).unwrap()
}

/// Returns the words that run a command as the user of a column.
fn as_user(column: &Column) -> Vec<String> {
    match column.is_root {
        true => Vec::new(),
        false => {
            ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"].map(String::from).into()
        }
    }
}

/// Returns the result of each attempt.
fn results(column: &Column, python: &Path) -> Vec<String> {
    ISOLATION.set(column.choice.clone());
    let place = Place::new();
    let visible = place.visible.path();
    let policy = visible.join("policy.toml");
    let mut words = as_user(column);
    words.extend(["sleep".into(), "6174".into()]);
    let mut other = Command::new(&words[0])
        .args(&words[1..])
        .env("SECRET_OF_THE_OTHER_JOB", "x")
        .spawn()
        .unwrap();
    let codes: Vec<&str> = ATTEMPTS.iter().map(|(_, code, _)| *code).collect();
    let script = format!(
        "export DATA=\"${{STEAD_RUNNER%/bin/*}}\" POLICY={} VISIBLE={} OTHER={} SECRET_HOME={} RUN_SOCKET={}\n\
         {} - <<'END'\nATTEMPTS = {}\n{PROGRAM}\nEND\n",
        policy.display(),
        visible.display(),
        other.id(),
        place.home.path().display(),
        place.run_socket.display(),
        python.display(),
        serde_json::to_string(&codes).unwrap(),
    );
    let socket = RefCell::new(None);
    let program = |data: &Data| {
        *socket.borrow_mut() = Some(write_targets(data));
        policy::Choice::File(policy.clone()).record(data).unwrap();
        if !column.is_root {
            place.belongs_to(USER);
            let top = data.root().parent().unwrap();
            let owner = format!("{USER}:{USER}");
            assert!(
                Command::new("chown").args(["-R", &owner]).arg(top).status().unwrap().success()
            );
        }
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "sh", "-c", HOST, "sh"]);
        command.env("DATA", data.root()).env("VISIBLE", visible).env("PYTHON", python);
        command.env("TUN", place.programs.path().join("tun"));
        command.env("PIDS", place.programs.path().join("pids")).env("HOME", place.home.path());
        command.args(as_user(column)).arg(place.programs.path().join("stead-runner"));
        command
    };
    let mut run = start_as(&script, MINUTE, |_| {}, program);
    let last = run.end();
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(last.outcome, Outcome::Succeeded, "{}: {:?}", column.title, run.records());
    assert_eq!(last.not_ended, Vec::<String>::new());
    let lines = run.lines();
    let result = |number| {
        let prefix = format!("attempt {number} ");
        let found = lines.iter().find_map(|line| line.strip_prefix(&prefix));
        found.unwrap_or_else(|| panic!("attempt {number} has no result: {lines:?}")).to_owned()
    };
    (0..ATTEMPTS.len()).map(result).collect()
}

/// Checks that each attempt ended as it must in this column.
fn check(column: &Column, results: &[String]) {
    let (is_sandbox, has_network) =
        (column.choice.level == IsolationLevel::Sandbox, column.choice.pasta.is_some());
    for ((title, _, enforced), result) in ATTEMPTS.iter().zip(results) {
        let expected: &[&str] = match enforced {
            Enforced::Sandbox(errors) if is_sandbox => errors,
            Enforced::OwnNetwork(errors) if has_network => errors,
            Enforced::Sandbox(_) | Enforced::OwnNetwork(_) | Enforced::Nowhere => {
                // A user without root meets the permissions of the host.
                match column.is_root {
                    true => &[REACHED],
                    false => &[REACHED, "EPERM", "EACCES"],
                }
            }
        };
        assert!(expected.contains(&result.as_str()), "{}: {title}: {result}", column.title);
    }
}

/// Returns whether a limit of the policy ends a job that starts too many processes.
fn is_limited(choice: Choice) -> bool {
    ISOLATION.set(choice);
    LIMITS.set(JobLimits { memory_bytes: None, processes: Some(500) });
    let mut run = start("for n in $(seq 10000); do sleep 30 & done; wait", MINUTE, |_| {});
    LIMITS.take();
    let last = run.end();
    assert_eq!(last.not_ended, Vec::<String>::new());
    last.reason == Some(FailureReason::ProcessLimit)
}

/// Returns whether a job never has more processes than a limit of the policy.
fn is_within_limit(choice: Choice) -> bool {
    const LIMIT: u32 = 250;
    ISOLATION.set(choice);
    LIMITS.set(JobLimits { memory_bytes: None, processes: Some(LIMIT) });
    let script = "n=0; while [ $n -lt 300 ]; do sleep 30 & n=$((n + 1)); echo $n; done; wait";
    let mut run = start(script, MINUTE, |_| {});
    LIMITS.take();
    assert_eq!(run.end().reason, Some(FailureReason::ProcessLimit), "{:?}", run.records());
    let started = run.lines().iter().filter_map(|line| line.parse::<u32>().ok()).max();
    started.unwrap() < LIMIT
}

/// Returns whether the runner reports the state of another component, which is `$STATE` in the script.
fn reports_other_state(choice: Choice, script: &str) -> bool {
    ISOLATION.set(choice);
    let script = format!("STATE=${{STEAD_RUNNER%/bin/*}}/state/other/terraform.tfstate\n{script}");
    let program = |data: &Data| {
        drop(write_targets(data));
        Command::new(env!("CARGO_BIN_EXE_stead-runner"))
    };
    let mut run = start_as(&script, MINUTE, |_| {}, program);
    run.end();
    fs::read_to_string(run.files.reports()).unwrap().contains("leak")
}

/// Returns whether a process that a job detached ends with the job.
fn ends_with_the_job(choice: Choice) -> bool {
    ISOLATION.set(choice);
    let is_running = || {
        let found = Command::new("pgrep").args(["-f", "sleep 6175"]).output().unwrap();
        !found.stdout.is_empty()
    };
    let mut run =
        start("setsid sleep 6175 >/dev/null 2>&1 & sleep 0.2; echo ready; sleep 1", MINUTE, |_| {});
    ready(&run);
    assert!(is_running(), "the attempt started no process");
    let last = run.end();
    assert_eq!(last.not_ended, Vec::<String>::new());
    !is_running()
}

const BEGIN: &str =
    "<!-- attempts: made by the test hostile_jobs_table of the crate runner-agent -->\n";
const END: &str = "<!-- end of attempts -->\n";

/// Returns a Python outside of the directories of version managers, which a sandbox hides.
fn python() -> Option<PathBuf> {
    let path = PathBuf::from("/usr/bin/python3");
    let works = |command: &mut Command| command.output().is_ok_and(|out| out.status.success());
    let is_usable = works(Command::new(&path).arg("-V"))
        && works(Command::new("unshare").args(["--net", "--mount", "ip", "link"]));
    is_usable.then_some(path)
}

/// Compares the table with `docs/security.md`. `UPDATE_GOLDEN=1` rewrites the table.
#[test]
fn hostile_jobs_table_matches_the_security_document() {
    let Some(sandbox) = sandbox_or_skip() else { return };
    let Some(python) = python() else {
        return skip("needs root, iproute2 and /usr/bin/python3");
    };
    let column =
        |title, choice: &Choice, is_root| Column { title, choice: choice.clone(), is_root };
    let (process, shared) = (Choice::default(), Choice { pasta: None, ..sandbox.clone() });
    let columns = [
        column("`process`, as root", &process, true),
        column("`process`", &process, false),
        column("`sandbox` with the host's network, as root", &shared, true),
        column("`sandbox`, as root", &sandbox, true),
        column("`sandbox`", &sandbox, false),
    ];
    let results = columns.each_ref().map(|column| {
        let results = results(column, &python);
        check(column, &results);
        results
    });
    let titles: Vec<&str> = columns.iter().map(|column| column.title).collect();
    let mut table = format!("| attempt | {} |\n|{}\n", titles.join(" | "), "---|".repeat(6));
    let word = |enforced: bool| if enforced { "enforced" } else { "not enforced" };
    let mut row = |title: &str, enforced: [bool; 5]| {
        table += &format!("| {title} | {} |\n", enforced.map(word).join(" | "));
    };
    for (number, (title, ..)) in ATTEMPTS.iter().enumerate() {
        row(title, results.each_ref().map(|all| all[number] != REACHED));
    }
    table += "\n| attempt, as root | `process` | `sandbox` |\n|---|---|---|\n";
    let levels = [&process, &sandbox];
    let copy = "cat \"$STATE\" > \"$STEAD_OUTPUT_FILE\"";
    assert!(reports_other_state(process.clone(), copy), "outputs are not reported");
    let link = "ln -sf \"$STATE\" \"$STEAD_OUTPUT_FILE\"";
    // Only the kernel enforces this. A host of this test that does not let it compares no such row.
    let within = has_controllers().then(|| levels.map(|choice| is_within_limit(choice.clone())));
    let kernel_row =
        "have 300 processes at the same time, with `max_processes = 250` and control groups";
    let further = within.map(|within| (kernel_row, within)).into_iter().chain([
        (
            "start 10,000 processes, with `max_processes = 500`",
            levels.map(|choice| is_limited(choice.clone())),
        ),
        (
            "make the runner report another component's state, with a link as output",
            levels.map(|choice| !reports_other_state(choice.clone(), link)),
        ),
        (
            "leave a process that outlives the job",
            levels.map(|choice| ends_with_the_job(choice.clone())),
        ),
    ]);
    for (title, enforced) in further {
        table += &format!("| {title} | {} |\n", enforced.map(word).join(" | "));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/security.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("docs/security.md has the markers");
    let (agreed, after) = rest.split_once(END).unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        assert!(within.is_some(), "the complete table needs control groups with limits");
        return fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    }
    let is_tried = |line: &&str| within.is_some() || !line.contains(kernel_row);
    let agreed: String = agreed.split_inclusive('\n').filter(is_tried).collect();
    assert_eq!(agreed, table);
}
