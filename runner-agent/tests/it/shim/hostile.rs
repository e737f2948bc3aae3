//! A hostile job tries to reach more than its own, at each level. The results are a table in
//! `docs/security.md`.
use std::{os::unix::net::UnixListener, path::Path};

use runner_agent::policy;

use super::*;

/// Attempts with a shell command that succeeds if the job reaches its goal.
const ATTEMPTS: &[(&str, &str)] = &[
    ("read the runner's identity key", r#"cat "$DATA/keys/identity""#),
    ("read the seed of the install", r#"cat "$DATA/keys/install""#),
    ("read the journal", r#"cat "$DATA/journal.ndjson""#),
    ("change the journal", r#"true >> "$DATA/journal.ndjson""#),
    ("read the policy", r#"grep -q version "$POLICY""#),
    ("change the policy", r#"[ -s "$POLICY" ] && true >> "$POLICY""#),
    ("disable the runner", r#"[ -d "$DATA/keys" ] && true > "$DATA/disabled.probe""#),
    ("read the files of another job", r#"cat "$DATA/jobs/other/work/file""#),
    ("read the state of another component", r#"cat "$DATA/state/other/terraform.tfstate""#),
    (
        "connect to the socket of another job",
        r#""$PYTHON" -c "import os, socket; socket.socket(socket.AF_UNIX).connect(os.environ['DATA'] + '/jobs/other/redact/socket')""#,
    ),
    ("see the processes of another job", r#"[ -d "/proc/$OTHER" ]"#),
    (
        "read the environment of another job",
        "grep -aq SECRET_OF_THE_OTHER_JOB /proc/[0-9]*/environ",
    ),
    ("send a signal to another job", r#"kill -0 "$OTHER""#),
    (
        "trace a process of another job (`ptrace`)",
        r#""$PYTHON" -c "import ctypes, os; exit(ctypes.CDLL(None).ptrace(16, int(os.environ['OTHER']), 0, 0) != 0)""#,
    ),
    ("read the token of the job in the memory of the shim", r#""$PYTHON" -c "$MEMORY""#),
    ("read the home directory of the runner's user", r#"cat "$SECRET_HOME/file""#),
    ("use sockets of services in `/run`", r#"[ -n "$(ls /run | grep -v '^systemd$')" ]"#),
    ("write outside of the job's directories", r#"true > "$VISIBLE/new""#),
    (
        "connect to a service on the host's loopback interface",
        r#""$PYTHON" -c "$CONNECT" 127.0.0.1"#,
    ),
    ("connect to the metadata service of the cloud", r#""$PYTHON" -c "$CONNECT" 169.254.169.254"#),
    (
        "connect to it with a socket that is bound to the interface (`SO_BINDTODEVICE`)",
        r#""$PYTHON" -c "$BOUND" 169.254.169.254"#,
    ),
    (
        "connect to it over IPv6, with a socket that is bound to the interface",
        r#""$PYTHON" -c "$BOUND" fd00:ec2::254"#,
    ),
    ("create a user namespace", "unshare --user true"),
    ("start 300 processes", "for n in $(seq 300); do sleep 1 & done; wait"),
    ("fill the disk (write 100 MB)", r#"head -c 100000000 /dev/zero > "$HOME/fill""#),
    ("mount a file system", "mount -t tmpfs none /mnt"),
    ("change the routes", "ip route add unreachable 192.0.2.77"),
];

/// Searches the memory of the shim for the job token, which the manifest does not contain.
const MEMORY: &str = r#"
import glob
found = False
def search(process):
    if b'\0shim\0' not in open(process + '/cmdline', 'rb').read():
        return False
    memory = open(process + '/mem', 'rb', 0)
    for line in open(process + '/maps'):
        range_, mode = line.split()[:2]
        start, end = (int(part, 16) for part in range_.split('-'))
        if mode.startswith('rw') and end < 2 ** 63:
            memory.seek(start)
            if b'job-token' + b'-1234567890' in memory.read(end - start):
                return True
    return False
for process in glob.glob('/proc/[0-9]*'):
    try:
        found = found or search(process)
    except OSError:
        pass
exit(not found)
"#;

/// Python outside of the directories of version managers, which a sandbox hides in part.
struct Python {
    program: PathBuf,
    prefix: PathBuf,
}

impl Python {
    fn find() -> Option<Python> {
        let print =
            "import os, sys; print(os.path.realpath(sys.executable)); print(sys.base_prefix)";
        let output = Command::new("python3").args(["-c", print]).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let mut lines = text.lines().map(PathBuf::from);
        Some(Python { program: lines.next()?, prefix: lines.next()? })
    }
}

/// Connects with a socket that is bound to the interface, which needs no capability.
const BOUND: &str = r#"
import socket, sys
address = sys.argv[1]
device = [name for _, name in socket.if_nameindex() if name != 'lo'][0]
s = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET)
s.settimeout(3)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
s.connect((address, 8999))
"#;

const CONNECT: &str = "import socket, sys; socket.create_connection((sys.argv[1], 8999), 3)";

/// Network of the host in this test: an interface with a default route, a service at all
/// addresses, and an address of a metadata service.
const HOST_NETWORK: &str = r#"
    ip link set lo up && ip link add v0 type veth peer name v1 &&
    ip address add 10.77.0.2/24 dev v0 && ip link set v0 up && ip link set v1 up &&
    ip -6 address add 2001:db8::2/64 dev v0 nodad && ip route add default via 10.77.0.1 &&
    ip -6 route add default via 2001:db8::1 || exit 9
    # The cloud is a neighbour, as on a virtual machine: a route to it exists only through the interface.
    unshare --net sleep 600 & cloud=$!
    while [ /proc/$cloud/ns/net -ef /proc/self/ns/net ]; do sleep 0.05; done
    ip link set v1 netns $cloud && nsenter --net --target $cloud sh -c "
        ip link set lo up && ip link set v1 up && ip address add 10.77.0.1/24 dev v1 &&
        ip address add 169.254.169.254/32 dev v1 && ip -6 address add 2001:db8::1/64 dev v1 nodad &&
        ip -6 address add fd00:ec2::254/128 dev v1 nodad" || exit 9
    python3 -m http.server 8999 --bind 0.0.0.0 >/dev/null 2>&1 &
    nsenter --net --target $cloud python3 -m http.server 8999 --bind :: >/dev/null 2>&1 &
    for address in 169.254.169.254 fd00:ec2::254; do
        until python3 -c "import socket; socket.create_connection(('$address', 8999), 1)" 2>/dev/null; do
            sleep 0.05
        done
    done
    until python3 -c "import socket; socket.create_connection(('127.0.0.1', 8999))" 2>/dev/null; do
        sleep 0.05
    done
    exec "$@"
"#;

/// Returns the numbers of the attempts that succeed with this isolation.
fn reached(choice: Choice, python: &Python, visible: &Path) -> Vec<bool> {
    ISOLATION.set(Choice { read: vec![python.prefix.clone()], ..choice });
    let home = tempfile::tempdir_in(std::env::var("HOME").unwrap()).unwrap();
    fs::write(home.path().join("file"), "secret").unwrap();
    let mut other =
        Command::new("sleep").arg("6174").env("SECRET_OF_THE_OTHER_JOB", "x").spawn().unwrap();
    let pid = other.id();
    let policy = visible.join("policy.toml");
    fs::write(&policy, "version = 1\n").unwrap();
    let socket = RefCell::new(None);
    let mut script = format!(
        "export DATA=\"${{STEAD_RUNNER%/bin/*}}\" POLICY={} VISIBLE={} OTHER={pid} SECRET_HOME={} PYTHON={}\n",
        policy.display(),
        visible.display(),
        home.path().display(),
        python.program.display()
    );
    // Without its tools, an attempt would fail for another reason.
    script += "\"$PYTHON\" -c 'import ctypes, glob, socket' && command -v ip mount setsid >/dev/null && echo tools\n";
    for (name, text) in [("MEMORY", MEMORY), ("BOUND", BOUND), ("CONNECT", CONNECT)] {
        script += &format!("{name}=$(cat <<'END'\n{text}\nEND\n)\nexport {name}\n");
    }
    for (number, (_, command)) in ATTEMPTS.iter().enumerate() {
        script += &format!("if {{ {command}\n}} >/dev/null 2>&1; then echo {number}; fi\n");
    }
    script += "setsid sleep 6175 >/dev/null 2>&1 &\n";
    let program = |data: &Data| {
        for file in ["keys/identity", "keys/install", "jobs/other/work/file"] {
            data::directory(data.path(file).parent().unwrap()).unwrap();
            data::replace(&data.path(file), b"secret").unwrap();
        }
        for dir in ["state/other", "jobs/other/redact"] {
            data::directory(&data.path(dir)).unwrap();
        }
        data::replace(&data.path("state/other/terraform.tfstate"), b"secret").unwrap();
        *socket.borrow_mut() =
            Some(UnixListener::bind(data.path("jobs/other/redact/socket")).unwrap());
        policy::Choice::File(policy.clone()).record(data).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "sh", "-c", HOST_NETWORK, "sh"]);
        command.arg(env!("CARGO_BIN_EXE_stead-runner"));
        command
    };
    let mut run = start_as(&script, MINUTE, |_| {}, program);
    let last = run.end();
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(last.outcome, Outcome::Succeeded, "{:?}", run.records());
    let left = Command::new("pgrep").args(["-f", "sleep 6175"]).output().unwrap();
    assert!(left.stdout.is_empty(), "a process outlived the job");
    assert_eq!(last.not_ended, Vec::<String>::new());
    let lines = run.lines();
    assert!(lines.iter().any(|line| line == "tools"), "{:?}", run.records());
    (0..ATTEMPTS.len()).map(|number| lines.contains(&number.to_string())).collect()
}

/// Returns whether a limit of the policy ends a job that starts too many processes.
fn is_limited(choice: Choice) -> bool {
    ISOLATION.set(choice);
    LIMITS.set(JobLimits { memory_bytes: None, processes: Some(100) });
    let mut run = start("for n in $(seq 300); do sleep 30 & done; wait", MINUTE, |_| {});
    LIMITS.take();
    run.end().reason == Some(FailureReason::ProcessLimit)
}

const BEGIN: &str =
    "<!-- attempts: made by the test hostile_jobs_table of the crate runner-agent -->\n";
const END: &str = "<!-- end of attempts -->\n";

/// Compares the table with `docs/security.md`. `UPDATE_GOLDEN=1` rewrites the table.
#[test]
fn hostile_jobs_table_matches_the_security_document() {
    let Some(sandbox) = sandbox_or_skip() else { return };
    let usable = |command: &[&str]| {
        let output = Command::new(command[0]).args(&command[1..]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let Some(python) = Python::find().filter(|_| usable(&["unshare", "--net", "ip", "link"]))
    else {
        return skip("needs root, iproute2 and python3");
    };
    let shared = Choice { pasta: None, ..sandbox.clone() };
    let levels = [Choice::default(), shared, sandbox];
    let limited = levels.clone().map(is_limited);
    let results = levels.map(|choice| {
        let visible = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        reached(choice, &python, visible.path())
    });
    let mut table = "| attempt | `process`, as root | `sandbox` without pasta | `sandbox` |\n|---|---|---|---|\n".to_owned();
    let word = |enforced: bool| if enforced { "enforced" } else { "not enforced" };
    for (number, (attempt, _)) in ATTEMPTS.iter().enumerate() {
        let cells = results.each_ref().map(|reached| word(!reached[number]));
        table += &format!("| {attempt} | {} |\n", cells.join(" | "));
    }
    let cells = limited.map(word);
    table +=
        &format!("| start 300 processes, with `max_processes = 100` | {} |\n", cells.join(" | "));
    table += "| a process that outlives the job | enforced | enforced | enforced |\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/security.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("docs/security.md has the markers");
    let (agreed, after) = rest.split_once(END).unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        return fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    }
    assert_eq!(agreed, table);
}
