//! Attempts of a hostile job, and the errors that they must meet in a sandbox.

/// Where an attempt must fail.
pub(super) enum Enforced {
    /// In each sandbox, with one of these errors.
    Sandbox(&'static [&'static str]),
    /// In a sandbox with a network of its own, with one of these errors.
    OwnNetwork(&'static [&'static str]),
    Nowhere,
}

use Enforced::{Nowhere, OwnNetwork, Sandbox};

/// Title, code in Python that raises no error if the job reaches its goal, and where it must fail.
pub(super) const ATTEMPTS: &[(&str, &str, Enforced)] = &[
    (
        "read the runner's identity key",
        "open(DATA + '/keys/identity').read()",
        Sandbox(&["ENOENT"]),
    ),
    ("read the seed of the install", "open(DATA + '/keys/install').read()", Sandbox(&["ENOENT"])),
    (
        "read the key through another mount of the data directory",
        "open(VISIBLE + '/alias/keys/identity').read()",
        Sandbox(&["ENOENT"]),
    ),
    ("read the journal", "open(DATA + '/journal.ndjson').read()", Sandbox(&["ENOENT"])),
    ("change the journal", "open(DATA + '/journal.ndjson', 'a').close()", Sandbox(&["EROFS"])),
    (
        "read the policy",
        "if 'version' not in open(POLICY).read(): fail('ENODATA')",
        Sandbox(&["EACCES", "ENODATA"]),
    ),
    ("change the policy", "open(POLICY, 'a').close()", Sandbox(&["EACCES", "EROFS"])),
    ("disable the runner", "open(DATA + '/disabled.probe', 'w').close()", Sandbox(&["EROFS"])),
    (
        "replace the program of the runner",
        // The shim withholds output while the program is missing, so one rename replaces it.
        "shutil.copy2(RUNNER, RUNNER + '.x'); os.rename(RUNNER + '.x', RUNNER)",
        Sandbox(&["EROFS", "EBUSY"]),
    ),
    (
        "read the files of another job",
        "open(DATA + '/jobs/other/work/file').read()",
        Sandbox(&["ENOENT"]),
    ),
    (
        "read the state of another component",
        "open(DATA + '/state/other/terraform.tfstate').read()",
        Sandbox(&["ENOENT"]),
    ),
    (
        "connect to the socket of another job",
        "unix(DATA + '/jobs/other/redact/socket')",
        Sandbox(&["ENOENT"]),
    ),
    ("see the processes of another job", "os.stat(f'/proc/{OTHER}')", Sandbox(&["ENOENT"])),
    (
        "see them through another proc file system",
        "os.stat(f'{VISIBLE}/proc/{OTHER}')",
        Sandbox(&["ENOENT"]),
    ),
    ("read the environment of another job", "environment()", Sandbox(&["ENOENT"])),
    ("send a signal to another job", "os.kill(OTHER, 0)", Sandbox(&["ESRCH"])),
    (
        "trace a process of another job (`ptrace`)",
        "call(libc.ptrace(16, OTHER, 0, 0)); libc.ptrace(17, OTHER, 0, 0)",
        Sandbox(&["ESRCH"]),
    ),
    ("read the token of a job in the memory of its shim", "memory()", Sandbox(&["ENOENT"])),
    (
        "read the home directory of the runner's user",
        "open(SECRET_HOME + '/file').read()",
        Sandbox(&["ENOENT"]),
    ),
    ("connect to a socket of a service in `/run`", "unix(RUN_SOCKET)", Sandbox(&["ENOENT"])),
    (
        "connect to a socket of a service in a visible directory",
        "unix(VISIBLE + '/service/socket')",
        Sandbox(&["ENOENT"]),
    ),
    (
        "write outside of the job's directories",
        "open(VISIBLE + '/new', 'w').close()",
        Sandbox(&["EROFS"]),
    ),
    (
        "connect to an abstract socket of the host",
        "unix('\\0stead-hostile')",
        OwnNetwork(&["ECONNREFUSED"]),
    ),
    (
        "connect to a service on the host's loopback interface",
        "tcp('127.0.0.1')",
        OwnNetwork(&["ECONNREFUSED"]),
    ),
    (
        "connect to the metadata service of the cloud",
        "tcp('169.254.169.254')",
        OwnNetwork(&["ECONNREFUSED"]),
    ),
    (
        "connect to it with a socket that is bound to the interface (`SO_BINDTODEVICE`)",
        "tcp('169.254.169.254', bound=True)",
        OwnNetwork(&["ECONNREFUSED"]),
    ),
    ("connect to it over IPv6", "tcp('fd00:ec2::254')", OwnNetwork(&["ECONNREFUSED"])),
    (
        "connect to it over IPv6, with a socket that is bound to the interface",
        "tcp('fd00:ec2::254', bound=True)",
        OwnNetwork(&["ECONNREFUSED"]),
    ),
    (
        "create a user namespace",
        "forked(lambda: call(libc.unshare(0x10000000)))",
        Sandbox(&["ENOSPC", "EPERM"]),
    ),
    (
        "mount a file system",
        "call(libc.mount(b'none', b'/mnt', b'tmpfs', 0, None))",
        Sandbox(&["EPERM"]),
    ),
    ("change the routes", "route()", Sandbox(&["EPERM"])),
    (
        "fill the disk (write 100 MB)",
        "open(os.environ['HOME'] + '/fill', 'wb').write(bytes(100_000_000))",
        Nowhere,
    ),
];

/// Functions of the attempts, and the loop over them. A line of output is the number of an attempt
/// and `reached`, or the name of the error.
pub(super) const PROGRAM: &str = r#"
import ctypes, errno, glob, os, shutil, socket, subprocess
libc = ctypes.CDLL(None, use_errno=True)
DATA, POLICY, VISIBLE, SECRET_HOME, RUN_SOCKET, RUNNER = (os.environ[name] for name in
    ('DATA', 'POLICY', 'VISIBLE', 'SECRET_HOME', 'RUN_SOCKET', 'STEAD_RUNNER'))
OTHER = int(os.environ['OTHER'])

def fail(name):
    raise OSError(getattr(errno, name), name)

def call(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), 'call')

def unix(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)

# SO_BINDTODEVICE needs no capability.
def tcp(address, bound=False):
    with socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET) as s:
        s.settimeout(5)
        if bound:
            device = [name for _, name in socket.if_nameindex() if name != 'lo'][0]
            s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        s.connect((address, 8999))

def environment():
    for path in glob.glob('/proc/[0-9]*/environ'):
        try:
            if b'SECRET_OF_THE_OTHER_JOB' in open(path, 'rb').read():
                return
        except OSError:
            pass
    fail('ENOENT')

# The manifest does not contain the token.
def memory():
    for process in glob.glob('/proc/[0-9]*'):
        try:
            if b'\0shim\0' not in open(process + '/cmdline', 'rb').read():
                continue
        except FileNotFoundError:
            continue
        memory = open(process + '/mem', 'rb', 0)
        for line in open(process + '/maps'):
            range_, mode = line.split()[:2]
            start, end = (int(part, 16) for part in range_.split('-'))
            if mode.startswith('rw') and end < 2 ** 63:
                try:
                    memory.seek(start)
                    if b'job-token' + b'-1234567890' in memory.read(end - start):
                        return
                except OSError:
                    pass
    fail('ENOENT')

def forked(function):
    pid = os.fork()
    if pid == 0:
        try:
            function()
            os._exit(0)
        except OSError as error:
            os._exit(error.errno)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        raise OSError(code, 'forked')

def route():
    added = subprocess.run(['ip', 'route', 'add', 'unreachable', '192.0.2.77'], capture_output=True, text=True)
    if added.returncode:
        fail('EPERM' if 'not permitted' in added.stderr else 'EIO')

for number, code in enumerate(ATTEMPTS):
    try:
        exec(code)
        result = 'reached'
    except OSError as error:
        result = errno.errorcode.get(error.errno, 'timeout')
    print('attempt', number, result, flush=True)
"#;

/// Network and mounts of the host in this test: an interface with a default route, a service on
/// the loopback interface, one in a visible directory, the metadata service of a cloud, another mount of the data directory,
/// another proc file system, and a tunnel device for every user.
pub(super) const HOST: &str = r#"
    mkdir "$VISIBLE/service" && mount --bind "$DATA" "$VISIBLE/alias" && mount -t proc proc "$VISIBLE/proc" &&
    mknod "$TUN" c 10 200 && chmod 666 "$TUN" && mount --bind "$TUN" /dev/net/tun || exit 9
    ip link set lo up && ip link add v0 type veth peer name v1 &&
    ip address add 10.77.0.2/24 dev v0 && ip link set v0 up && ip link set v1 up &&
    ip -6 address add 2001:db8::2/64 dev v0 nodad && ip route add default via 10.77.0.1 &&
    ip -6 route add default via 2001:db8::1 || exit 9
    # These processes are no children of the shim. The test ends them.
    start() { ("$@" >/dev/null 2>&1 & echo $! >> "$PIDS"); }
    # The cloud is a neighbour, as on a virtual machine: a route to it exists only through the interface.
    start unshare --net sleep 600
    cloud=$(cat "$PIDS")
    while [ /proc/$cloud/ns/net -ef /proc/self/ns/net ]; do sleep 0.05; done
    ip link set v1 netns $cloud && nsenter --net --target $cloud sh -c "
        ip link set lo up && ip link set v1 up && ip address add 10.77.0.1/24 dev v1 &&
        ip address add 169.254.169.254/32 dev v1 && ip -6 address add 2001:db8::1/64 dev v1 nodad &&
        ip -6 address add fd00:ec2::254/128 dev v1 nodad" || exit 9
    start "$PYTHON" -m http.server 8999 --bind 127.0.0.1
    start nsenter --net --target $cloud "$PYTHON" -m http.server 8999 --bind ::
    start "$PYTHON" -c "import socket, time; s = socket.socket(socket.AF_UNIX); s.bind('\0stead-hostile'); s.listen(9); time.sleep(600)"
    start "$PYTHON" -c "import os, socket, time; s = socket.socket(socket.AF_UNIX); s.bind('$VISIBLE/service/socket'); os.chmod('$VISIBLE/service/socket', 0o666); s.listen(9); time.sleep(600)"
    until "$PYTHON" -c "import socket; socket.socket(socket.AF_UNIX).connect('$VISIBLE/service/socket')" 2>/dev/null; do
        sleep 0.05
    done
    for address in 127.0.0.1 169.254.169.254 fd00:ec2::254; do
        until "$PYTHON" -c "import socket; socket.create_connection(('$address', 8999), 1)" 2>/dev/null; do
            sleep 0.05
        done
    done
    exec "$@"
"#;
