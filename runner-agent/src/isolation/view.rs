//! View that a program of a job has of the host: all of it read-only, without the files of the
//! runner and of its user, and with the files of the job.
use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    hidden::{Hidden, place},
    reach,
    visible::{Leaks, Mounts},
};

/// Namespaces of every sandbox, without the network. The program has no capability.
pub(super) const NAMESPACES: [&str; 9] = [
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--cap-drop",
    "ALL",
    "--hostname",
    "stead-job",
];
/// Prevents further user namespaces, from version 0.8.0 of bubblewrap on.
pub(super) const CLOSE_NAMESPACES: &str = "--disable-userns";

/// Programs that built-in plugins and the plugins of Stead run.
const TOOLS: [&str; 4] = ["terraform", "tofu", "helm", "kubectl"];

/// Directories with the certificates that programs trust, below hidden ones: SUSE.
const CERTIFICATES: [&str; 1] = ["/var/lib/ca-certificates"];

/// Path of the host that stays visible at the same place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mount {
    Read(PathBuf),
    /// A path that the runner removes while the job runs.
    ReadWhileThere(PathBuf),
    Write(PathBuf),
    /// Shows the first file at the place of the second one.
    Instead(PathBuf, PathBuf),
}

/// What the view of a job consists of.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// Data directory of the runner.
    pub data: PathBuf,
    /// Directory for temporary files.
    pub tmp: PathBuf,
    /// Paths outside of the data directory.
    pub outside: Vec<Mount>,
    /// Paths inside the data directory.
    pub inside: Vec<Mount>,
    /// Paths that the policy shows, with the sockets in them.
    pub shown: Vec<PathBuf>,
}

/// Sandbox of a job, in which each of its programs starts.
#[derive(Debug, Clone)]
pub struct Sandbox {
    pub(crate) bwrap: PathBuf,
    pub(crate) closes_namespaces: bool,
    /// Path of `stead-runner` that is valid inside and outside.
    pub(crate) runner: PathBuf,
    /// Process that holds the job's network, unless the job uses the host's.
    pub(crate) network: Option<u32>,
    /// Ports on the loopback interface of the host that the job's network reaches.
    pub(crate) loopback: Vec<u16>,
    pub(crate) view: View,
}

impl Sandbox {
    /// Returns a sandbox with a network of its own, whose programs cannot start.
    #[cfg(test)]
    pub(crate) fn of_test(loopback: Vec<u16>) -> Sandbox {
        let [data, tmp] = ["/root/data", "/root/data/jobs/1/own-tmp"].map(PathBuf::from);
        let (outside, inside, shown) = Default::default();
        let view = View { data, tmp, outside, inside, shown };
        let (bwrap, runner) = ("/nonexistent/bwrap".into(), "/nonexistent/stead-runner".into());
        Sandbox { bwrap, closes_namespaces: true, runner, network: Some(1), loopback, view }
    }

    /// Returns why programs in the sandbox cannot connect to this URL, although the host can.
    pub(crate) fn cannot_reach(&self, url: &str) -> Option<String> {
        self.network?;
        let hosts = fs::read_to_string(reach::HOSTS).unwrap_or_default();
        reach::refusal(url, &self.loopback, &hosts, &reach::own_addresses())
    }

    /// Returns the words that start a program of the job in the sandbox. The program and its
    /// arguments follow them.
    /// `status` is the number of the pipe of [`status_pipe`](super::status_pipe).
    ///
    /// # Errors
    /// The view of the host cannot be determined, or cannot hide a socket.
    pub(crate) fn words(
        &self,
        program: &Path,
        dir: &Path,
        status: i32,
    ) -> io::Result<Vec<OsString>> {
        let mut words: Vec<OsString> = vec![self.runner.clone().into(), "sandbox-enter".into()];
        if let Some(holder) = self.network {
            words.extend(["--network".into(), holder.to_string().into()]);
        }
        words.extend(["--".into(), self.bwrap.clone().into()]);
        words.extend(NAMESPACES.map(OsString::from));
        words.extend(self.closes_namespaces.then(|| OsString::from(CLOSE_NAMESPACES)));
        words.extend(self.view.words(program)?);
        words.extend(["--chdir".into(), dir.into(), "--".into()]);
        words.extend([self.runner.clone().into(), "sandbox-start".into(), "--status".into()]);
        words.extend([status.to_string().into(), "--".into()]);
        words.extend([self.runner.clone().into(), "sandbox-run".into(), "--".into()]);
        Ok(words)
    }
}

impl View {
    fn words(&self, program: &Path) -> io::Result<Vec<OsString>> {
        let mut words = Words::default();
        words.add(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]);
        let (hidden, mounts) = (Hidden::of_host(), Mounts::of_host()?);
        let leaks = Leaks::of_host(&mounts, &hidden, &self.data, &self.shown)?;
        for (dir, sockets) in &leaks.sockets {
            words.without_sockets(dir, sockets, &mounts);
        }
        for path in &leaks.files {
            words.add([OsStr::new("--ro-bind"), OsStr::new("/dev/null"), path.as_ref()]);
        }
        for path in &leaks.dirs {
            words.add([OsStr::new("--tmpfs"), path.as_ref()]);
        }
        for path in &hidden.dirs {
            words.add([OsStr::new("--tmpfs"), path.as_ref()]);
        }
        for path in &hidden.files {
            words.add([OsStr::new("--ro-bind"), OsStr::new("/dev/null"), path.as_ref()]);
        }
        for path in &hidden.temporary {
            words.add([OsStr::new("--bind"), self.tmp.as_ref(), path.as_ref()]);
        }
        // A program may be a link into a hidden directory.
        let mut outside = self.outside.clone();
        let real = fs::canonicalize(program).unwrap_or_else(|_| program.to_owned());
        let programs = [program.to_owned(), real].into_iter().collect::<BTreeSet<_>>();
        outside.extend(programs.into_iter().filter(|path| hidden.contains(path)).map(Mount::Read));
        // The data directory comes last, so that no other mount shows it again.
        outside.iter().filter(|mount| !self.is_own(mount)).for_each(|mount| words.mount(mount));
        words.add([OsStr::new("--tmpfs"), self.data.as_ref()]);
        self.inside.iter().for_each(|mount| words.mount(mount));
        for path in hidden.dirs.iter().chain(&leaks.dirs).chain([&self.data]) {
            words.add([OsStr::new("--remount-ro"), path.as_ref()]);
        }
        Ok(words.0)
    }

    fn is_own(&self, mount: &Mount) -> bool {
        let (Mount::Read(path)
        | Mount::ReadWhileThere(path)
        | Mount::Write(path)
        | Mount::Instead(_, path)) = mount;
        path.starts_with(&self.data) || place(path).starts_with(&self.data)
    }
}

#[derive(Default)]
struct Words(Vec<OsString>);

impl Words {
    fn add<W: AsRef<OsStr>, const N: usize>(&mut self, words: [W; N]) {
        self.0.extend(words.iter().map(|word| word.as_ref().to_owned()));
    }

    /// Hides sockets. bubblewrap mounts over a socket only in a writable mount, so their directory
    /// gets a mount of its own, which is read-only at the end.
    fn without_sockets(&mut self, dir: &Path, sockets: &BTreeSet<PathBuf>, mounts: &Mounts) {
        self.add([OsStr::new("--bind"), dir.as_ref(), dir.as_ref()]);
        for socket in sockets {
            self.add([OsStr::new("--ro-bind"), OsStr::new("/dev/null"), socket.as_ref()]);
        }
        for path in mounts.below(dir).chain([dir]) {
            self.add([OsStr::new("--remount-ro"), path.as_ref()]);
        }
    }

    fn mount(&mut self, mount: &Mount) {
        let (how, from, to) = match mount {
            Mount::Read(path) => ("--ro-bind", path, place(path)),
            Mount::ReadWhileThere(path) => ("--ro-bind-try", path, place(path)),
            Mount::Write(path) => ("--bind", path, place(path)),
            Mount::Instead(from, to) => ("--ro-bind", from, place(to)),
        };
        self.add([OsStr::new(how), from.as_ref(), to.as_ref()]);
    }
}

/// Returns the mounts that a job needs because of its environment: the hidden directories of its
/// search path, the certificates of the system, and files that variables of the customer name.
pub(crate) fn of_environment<'v>(path: &str, values: impl Iterator<Item = &'v str>) -> Vec<Mount> {
    let hidden = Hidden::of_host();
    let dirs = std::env::split_paths(path).filter(|dir| hidden.contains(dir) && dir.is_dir());
    // A tool of the runner may be a link to a file in a hidden directory.
    let tools = TOOLS.into_iter().filter_map(|name| {
        let found =
            std::env::split_paths(path).map(|dir| dir.join(name)).find(|file| file.is_file());
        fs::canonicalize(found?).ok().filter(|file| hidden.contains(file))
    });
    let certificates = CERTIFICATES.into_iter().map(PathBuf::from);
    let certificates = certificates.filter(|dir| hidden.contains(dir) && dir.is_dir());
    // A variable such as KUBECONFIG can name several files.
    let files = values.flat_map(std::env::split_paths);
    let files = files.filter(|path| hidden.contains(path) && path.is_file());
    dirs.chain(tools).chain(certificates).chain(files).map(Mount::Read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> View {
        let data = PathBuf::from("/root/data");
        View {
            tmp: data.join("jobs/1/own-tmp"),
            outside: vec![Mount::Read("/root/data/keys".into()), Mount::Write("/srv/cache".into())],
            inside: vec![Mount::Write(data.join("jobs/1/work"))],
            shown: Vec::new(),
            data,
        }
    }

    #[test]
    fn no_mount_shows_the_data_directory_again() {
        let words = view().words(Path::new("/bin/sh")).unwrap();
        let place = |word: &str| words.iter().position(|found| found == word);
        assert_eq!(place("/root/data/keys"), None);
        assert!(place("/srv/cache") < place("/root/data"));
        assert!(place("/root/data") < place("/root/data/jobs/1/work"));
    }

    #[test]
    fn a_loopback_service_is_reachable_only_through_a_port_of_the_policy() {
        let mut sandbox = Sandbox::of_test(vec![6443]);
        assert_eq!(sandbox.cannot_reach("https://127.0.0.1:6443"), None);
        let why = sandbox.cannot_reach("https://127.0.0.1:8443").unwrap();
        assert!(why.ends_with("sandbox_loopback = [6443, 8443]"), "{why}");
        sandbox.network = None;
        assert_eq!(sandbox.cannot_reach("https://127.0.0.1:8443"), None);
    }

    #[test]
    fn a_search_path_and_named_files_stay_visible() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let file = dir.path().join("config");
        fs::write(&file, "").unwrap();
        let path = format!("/usr/bin:{}", dir.path().display());
        let second = dir.path().join("second");
        fs::write(&second, "").unwrap();
        let list = format!("{}:/nonexistent:{}", file.display(), second.display());
        let values = ["/root", "plain", &list, "/tmp"].into_iter();
        let found = of_environment(&path, values);
        let expected = [dir.path().to_owned(), file, second].map(Mount::Read);
        assert_eq!(found, expected);
    }
}
