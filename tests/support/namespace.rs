//! A machine of the customer's: another user in a network namespace of its own, with one wire to the server.
use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Output},
    sync::atomic::{AtomicU32, Ordering},
};

use crate::{in_ci, stdout_of};

/// How many this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A network namespace with one end of a wire; the other end is here.
pub struct Namespace {
    name: String,
    wire: String,
    number: u32,
}

impl Namespace {
    /// Make one. Without root a test says so and passes; under CI it fails.
    pub fn new_or_skip() -> Option<Namespace> {
        // Tests may be processes of their own or threads of one.
        let number = (std::process::id() << 3) + MADE.fetch_add(1, Ordering::Relaxed);
        let (name, wire) = (format!("stead-{number}"), format!("st{number}"));
        let made = Command::new("ip").args(["netns", "add", &name]).output();
        let why = match made {
            Ok(Output { status, .. }) if status.success() => {
                let namespace = Namespace { name, wire, number };
                namespace.connect();
                return Some(namespace);
            }
            Ok(Output { stderr, .. }) => String::from_utf8_lossy(&stderr).trim().to_string(),
            Err(error) => format!("ip: {error}"),
        };
        assert!(!in_ci(), "CI must be able to make a network namespace: {why}");
        eprintln!("SKIPPED: a network namespace needs root and iproute2: {why}");
        None
    }

    fn connect(&self) {
        let (here, there) = (format!("{}a", self.wire), format!("{}b", self.wire));
        let ip = |line: String| stdout_of(Command::new("ip").args(line.split(' ')));
        ip(format!("link add {here} type veth peer name {there} netns {}", self.name));
        ip(format!("address add {}/30 dev {here}", self.server_ip()));
        ip(format!("link set {here} up"));
        ip(format!("-n {} address add {}/30 dev {there}", self.name, self.customer_ip()));
        ip(format!("-n {} link set {there} up", self.name));
        ip(format!("-n {} link set lo up", self.name));
    }

    fn ip(&self, last: u32) -> String {
        // A range for tests between machines, a piece of four addresses per process.
        let (high, low) = ((self.number >> 6) & 0xff, (self.number << 2) & 0xff);
        format!("198.18.{high}.{}", low + last)
    }

    /// The server's end of the wire.
    pub fn server_ip(&self) -> String {
        self.ip(1)
    }

    /// The other end.
    pub fn customer_ip(&self) -> String {
        self.ip(2)
    }

    /// Who works inside: user and group of `nobody`.
    pub fn user() -> (String, String) {
        let id = |what| stdout_of(Command::new("id").args([what, "nobody"])).trim().to_string();
        (id("-u"), id("-g"))
    }

    /// Words that run what follows them as that user.
    pub fn as_the_customer() -> Vec<String> {
        let (user, group) = Namespace::user();
        let (user, group) = (format!("--reuid={user}"), format!("--regid={group}"));
        ["setpriv", &user, &group, "--clear-groups"].map(String::from).into()
    }

    /// Words that run what follows them inside, as who runs the test.
    pub fn enter(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.name].map(String::from).into()
    }

    /// Words that run what follows them inside, as that user.
    pub fn words(&self) -> Vec<String> {
        [self.enter(), Namespace::as_the_customer()].concat()
    }

    /// Whether that user can read all of this file or directory, or run what is a program.
    pub fn lets(path: &Path) -> bool {
        let mut words = Namespace::as_the_customer();
        let all = "test -e \"$0\" && ! find -L \"$0\" ! -readable -o -perm /111 ! -executable | grep -q .";
        words.extend(["sh", "-c", all].map(String::from));
        let said = Command::new(&words[0]).args(&words[1..]).arg(path).output().unwrap();
        said.status.success() && said.stderr.is_empty()
    }

    /// Whether a TCP connection from inside, by that user, comes about.
    pub fn reaches(&self, ip: &str, port: &str) -> bool {
        let connect = format!("exec 3<>/dev/tcp/{ip}/{port}");
        let mut words = self.words();
        words.extend(["timeout", "5", "bash", "-c", &connect].map(String::from));
        Command::new(&words[0]).args(&words[1..]).output().unwrap().status.success()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Whatever still runs inside would keep the namespace and its wire alive.
        if let Ok(pids) = Command::new("ip").args(["netns", "pids", &self.name]).output() {
            for pid in String::from_utf8_lossy(&pids.stdout).split_whitespace() {
                let _gone = Command::new("kill").args(["-KILL", pid]).output();
            }
        }
        let here = format!("{}a", self.wire);
        let _link = Command::new("ip").args(["link", "delete", &here]).output();
        let _name = Command::new("ip").args(["netns", "delete", &self.name]).output();
    }
}

/// What the kernel says of the TCP sockets in the network namespace of a process.
#[derive(Debug, Default)]
pub struct Sockets {
    /// Ports on which somebody listens.
    pub listening: BTreeSet<u16>,
    /// Where connections go to: address and port as the kernel writes them. The ends of those that somebody
    /// inside listens for are not among them.
    pub peers: BTreeSet<String>,
}

impl Sockets {
    /// As seen by this process; none when it is gone.
    pub fn of(pid: u32) -> Sockets {
        let mut sockets = Sockets::default();
        let mut connections = Vec::new();
        for table in ["tcp", "tcp6"] {
            let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
            for line in text.lines().skip(1) {
                let fields: Vec<_> = line.split_whitespace().collect();
                let [_, local, remote, state, ..] = fields.as_slice() else { continue };
                let port = u16::from_str_radix(local.rsplit(':').next().unwrap(), 16).unwrap();
                if *state == "0A" {
                    sockets.listening.insert(port);
                } else {
                    connections.push((port, remote.to_string()));
                }
            }
        }
        let outward = connections.into_iter().filter(|(port, _)| !sockets.listening.contains(port));
        sockets.peers = outward.map(|(_, remote)| remote).collect();
        sockets
    }

    /// An IPv4 address and port as the kernel writes them.
    pub fn peer(ip: &str, port: &str) -> String {
        let bytes: Vec<u8> = ip.split('.').map(|part| part.parse().unwrap()).collect();
        let number = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        format!("{number:08X}:{:04X}", port.parse::<u16>().unwrap())
    }
}
