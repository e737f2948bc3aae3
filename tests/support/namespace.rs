//! Machine of the customer: another user in its own network namespace, with one link to the server.
use std::{
    collections::BTreeSet,
    fs,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use crate::{in_ci, stdout_of, until};

/// Time limit for the start of a forwarder.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Number of namespaces that this process created.
static CREATED_COUNT: AtomicU32 = AtomicU32::new(0);

/// Network namespace with one end of a link. The other end is outside.
pub struct Namespace {
    name: String,
    wire: String,
    number: u32,
}

impl Namespace {
    /// Creates a namespace. Without root, the test prints a note and passes; in CI it fails.
    pub fn new_or_skip() -> Option<Namespace> {
        // Tests can run as separate processes or as threads of one process.
        let number = (std::process::id() << 3) + CREATED_COUNT.fetch_add(1, Ordering::Relaxed);
        let (name, wire) = (format!("stead-{number}"), format!("st{number}"));
        let result = Command::new("ip").args(["netns", "add", &name]).output();
        let why = match result {
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
        // Address range for tests between machines, with four addresses per namespace.
        let (high, low) = ((self.number >> 6) & 0xff, (self.number << 2) & 0xff);
        format!("198.18.{high}.{}", low + last)
    }

    /// Returns the server's address on the link.
    pub fn server_ip(&self) -> String {
        self.ip(1)
    }

    /// Returns the customer's address on the link.
    pub fn customer_ip(&self) -> String {
        self.ip(2)
    }

    /// Returns the user id and the group id of the customer's processes: those of `nobody`.
    pub fn user() -> (String, String) {
        let id = |what| stdout_of(Command::new("id").args([what, "nobody"])).trim().to_string();
        (id("-u"), id("-g"))
    }

    /// Returns the command that runs another command as the customer's user.
    pub fn as_the_customer() -> Vec<String> {
        let (user, group) = Namespace::user();
        let (user, group) = (format!("--reuid={user}"), format!("--regid={group}"));
        ["setpriv", &user, &group, "--clear-groups"].map(String::from).into()
    }

    /// Returns the command that runs another command in the namespace, as the user of the test.
    pub fn enter(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.name].map(String::from).into()
    }

    /// Returns the command that runs another command in the namespace, as the customer's user.
    pub fn command(&self) -> Vec<String> {
        [self.enter(), Namespace::as_the_customer()].concat()
    }

    /// Returns whether the customer's user can read all of this file or directory, or run this
    /// program.
    pub fn customer_can_read(path: &Path) -> bool {
        let mut args = Namespace::as_the_customer();
        let all = "test -e \"$0\" && ! find -L \"$0\" ! -readable -o -perm /111 ! -executable | grep -q .";
        args.extend(["sh", "-c", all].map(String::from));
        let output = Command::new(&args[0]).args(&args[1..]).arg(path).output().unwrap();
        output.status.success() && output.stderr.is_empty()
    }

    /// Returns whether the customer's user can open a TCP connection from inside.
    pub fn reaches(&self, ip: &str, port: &str) -> bool {
        let connect = format!("exec 3<>/dev/tcp/{ip}/{port}");
        let mut args = self.command();
        args.extend(["timeout", "5", "bash", "-c", &connect].map(String::from));
        Command::new(&args[0]).args(&args[1..]).output().unwrap().status.success()
    }
}

/// Port on loopback inside a namespace that leads to the same port on loopback outside. No other
/// port becomes reachable.
pub struct Forward {
    ends: [Child; 2],
    /// Port on the server's address of the link.
    link_port: u16,
}

impl Namespace {
    /// Forwards a port with two `socat` processes, one at each end of the link.
    pub fn forward(&self, port: u16) -> Forward {
        let free = TcpListener::bind((self.server_ip().as_str(), 0)).unwrap();
        let link_port = free.local_addr().unwrap().port();
        drop(free);
        let socat = |before: &[String], listen: &str, to: String| {
            let args =
                [before, &["socat".into(), format!("TCP-LISTEN:{listen},fork,reuseaddr"), to]];
            let args = args.concat();
            Command::new(&args[0]).args(&args[1..]).stderr(Stdio::null()).spawn().unwrap()
        };
        let listen = format!("{link_port},bind={}", self.server_ip());
        let outside = socat(&[], &listen, format!("TCP:127.0.0.1:{port}"));
        let to = format!("TCP:{}:{link_port}", self.server_ip());
        let inside = socat(&self.enter(), &format!("{port},bind=127.0.0.1"), to);
        until("the forwarded port", TIMEOUT, || self.reaches("127.0.0.1", &port.to_string()));
        Forward { ends: [inside, outside], link_port }
    }
}

impl Forward {
    /// Returns the port on the server's address of the link.
    pub fn link_port(&self) -> u16 {
        self.link_port
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        // Processes of open connections end with their connections.
        for end in &mut self.ends {
            let _killed = end.kill();
            let _ended = end.wait();
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // A remaining process would keep the namespace and its link alive.
        if let Ok(pids) = Command::new("ip").args(["netns", "pids", &self.name]).output() {
            for pid in String::from_utf8_lossy(&pids.stdout).split_whitespace() {
                let _killed = Command::new("kill").args(["-KILL", pid]).output();
            }
        }
        let here = format!("{}a", self.wire);
        let _link = Command::new("ip").args(["link", "delete", &here]).output();
        let _name = Command::new("ip").args(["netns", "delete", &self.name]).output();
    }
}

/// Loopback addresses as the kernel prints them.
const LOOPBACK: [&str; 2] = ["0100007F:", "00000000000000000000000001000000:"];

/// TCP sockets in the network namespace of a process, as the kernel reports them.
#[derive(Debug, Default)]
pub struct Sockets {
    /// Listening ports.
    pub listening: BTreeSet<u16>,
    /// Listening ports that other hosts can reach.
    pub exposed: BTreeSet<u16>,
    /// Remote address and port of each connection, as the kernel prints them. Connections to a
    /// listener inside and on the loopback interface are excluded.
    pub peers: BTreeSet<String>,
}

impl Sockets {
    /// Returns the sockets that this process sees, or none if the process has ended.
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
                    if !LOOPBACK.iter().any(|address| local.starts_with(address)) {
                        sockets.exposed.insert(port);
                    }
                } else {
                    connections.push((port, remote.to_string()));
                }
            }
        }
        let is_local = |remote: &str| LOOPBACK.iter().any(|address| remote.starts_with(address));
        let outward = connections
            .into_iter()
            .filter(|(port, remote)| !sockets.listening.contains(port) && !is_local(remote));
        sockets.peers = outward.map(|(_, remote)| remote).collect();
        sockets
    }

    /// Returns an IPv4 address and port as the kernel prints them.
    pub fn peer(ip: &str, port: &str) -> String {
        let bytes: Vec<u8> = ip.split('.').map(|part| part.parse().unwrap()).collect();
        let number = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        format!("{number:08X}:{:04X}", port.parse::<u16>().unwrap())
    }
}
