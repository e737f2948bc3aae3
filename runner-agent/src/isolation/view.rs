//! View that a program of a job has of the host: all of it read-only, without the files of the
//! runner and of its user, and with the files of the job.
use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    hidden::{Hidden, LINKS, place, places},
    reach,
    visible::Leaks,
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

/// Parts of the view of a job.
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
        let hidden = Hidden::of_host();
        let shown: Vec<_> = self.shown.iter().flat_map(|path| places(path, &hidden)).collect();
        let leaks = Leaks::of_host(&hidden, &self.data, &shown)?;
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
        let mut outside = self.outside.clone();
        outside.extend(hidden.contains(program).then(|| Mount::Read(program.to_owned())));
        outside.extend(through_links(program, &hidden).into_iter().map(Mount::Read));
        let (placed, covers) = self.placed(&outside, &hidden);
        for Placed { how, from, to, .. } in &placed {
            self.check_temporary(to, &hidden)?;
            words.add([OsStr::new(how), from.as_ref(), to.as_ref()]);
        }
        for path in &covers {
            words.add([OsStr::new("--tmpfs"), path.as_ref()]);
        }
        // The data directory comes last, so that no other mount shows it again.
        words.add([OsStr::new("--tmpfs"), self.data.as_ref()]);
        for mount in &self.inside {
            let (how, from, to) = mount.parts();
            words.add([OsStr::new(how), from.as_ref(), place(to).as_ref()]);
        }
        for path in hidden.dirs.iter().chain(&leaks.dirs).chain(&covers).chain([&self.data]) {
            words.add([OsStr::new("--remount-ro"), path.as_ref()]);
        }
        Ok(words.0)
    }

    /// Checks that no link of the job redirects a mount in a directory for temporary files: bubblewrap
    /// would create its place elsewhere on the host.
    fn check_temporary(&self, to: &Path, hidden: &Hidden) -> io::Result<()> {
        let below = hidden.temporary.iter().find_map(|dir| to.strip_prefix(dir).ok());
        let mut at = self.tmp.clone();
        for name in below.iter().flat_map(|below| below.iter()) {
            at.push(name);
            if fs::symlink_metadata(&at).is_ok_and(|found| found.is_symlink()) {
                let to = to.display();
                return Err(io::Error::other(format!("the job put a link in the place of {to}")));
            }
        }
        Ok(())
    }

    /// Returns the mounts at the places of their paths, without those in the data directory, and other
    /// places at which they would show that directory.
    fn placed(&self, mounts: &[Mount], hidden: &Hidden) -> (Vec<Placed>, BTreeSet<PathBuf>) {
        let mut placed: Vec<Placed> = Vec::new();
        for mount in mounts {
            let (how, from, path) = mount.parts();
            let all = places(path, hidden);
            if all.iter().any(|to| to.starts_with(&self.data)) {
                continue;
            }
            let from = fs::canonicalize(from).unwrap_or_else(|_| from.to_owned());
            let is_same = matches!(mount, Mount::Read(_));
            let new = all.into_iter().map(|to| Placed { how, from: from.clone(), to, is_same });
            placed.extend(new);
        }
        // A directory that is shown has its own links, on which nothing can be mounted.
        let is_shown = |one: &Placed| {
            one.is_same && placed.iter().any(|all| all.to != one.to && one.to.starts_with(&all.to))
        };
        let mut shown: Vec<_> = placed.iter().filter(|one| !is_shown(one)).cloned().collect();
        // What is shown at the place of a link is there a second time.
        let again = |path: &Path| -> Vec<PathBuf> {
            let of = |one: &Placed| Some(one.to.join(path.strip_prefix(&one.from).ok()?));
            placed.iter().filter_map(of).filter(|at| at != path).collect()
        };
        for one in placed.iter().filter(|one| !one.is_same && one.how == READ) {
            shown.extend(again(&one.to).into_iter().map(|to| Placed { to, ..one.clone() }));
        }
        (shown, again(&self.data).into_iter().collect())
    }
}

/// Mount at a place in the view.
#[derive(Debug, Clone, PartialEq)]
struct Placed {
    how: &'static str,
    from: PathBuf,
    to: PathBuf,
    /// True if it shows the path itself, read-only.
    is_same: bool,
}

const READ: &str = "--ro-bind";

impl Mount {
    /// Returns the option of bubblewrap, the path of the host and the path in the view.
    fn parts(&self) -> (&'static str, &Path, &Path) {
        match self {
            Mount::Read(path) => (READ, path, path),
            Mount::ReadWhileThere(path) => ("--ro-bind-try", path, path),
            Mount::Write(path) => ("--bind", path, path),
            Mount::Instead(from, to) => (READ, from, to),
        }
    }
}

/// Returns the hidden paths to which a file links, over several links.
fn through_links(file: &Path, hidden: &Hidden) -> Vec<PathBuf> {
    let next = |file: &PathBuf| Some(file.parent()?.join(fs::read_link(file).ok()?));
    let all = std::iter::successors(next(&file.to_owned()), next).take(LINKS);
    all.filter(|path| path.is_file() && hidden.contains(path)).collect()
}

#[derive(Default)]
struct Words(Vec<OsString>);

impl Words {
    fn add<W: AsRef<OsStr>, const N: usize>(&mut self, words: [W; N]) {
        self.0.extend(words.iter().map(|word| word.as_ref().to_owned()));
    }
}

/// Returns the mounts that a job needs because of its environment: the hidden directories of its
/// search path, the certificates of the system, and files that variables of the customer name.
pub(crate) fn of_environment<'v>(path: &str, values: impl Iterator<Item = &'v str>) -> Vec<Mount> {
    let hidden = Hidden::of_host();
    // A visible link can lead to a hidden path.
    let is_hidden = |path: &Path| places(path, &hidden).iter().any(|at| hidden.contains(at));
    let in_path = || std::env::split_paths(path).filter(|dir| dir.is_dir());
    let dirs: Vec<_> = in_path().filter(|dir| is_hidden(dir)).collect();
    // A tool of the runner, and each file in a hidden directory of the path, may be a link to a file in
    // a hidden directory.
    let tools = TOOLS.into_iter().flat_map(|name| in_path().map(move |dir| dir.join(name)));
    let files = dirs.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten();
    let files = files.map(|entry| entry.path()).chain(tools);
    let tools: Vec<_> = files.flat_map(|file| through_links(&file, &hidden)).collect();
    let certificates = CERTIFICATES.into_iter().map(PathBuf::from);
    let certificates = certificates.filter(|dir| hidden.contains(dir) && dir.is_dir());
    // A variable such as KUBECONFIG can name several files.
    let files = values.flat_map(std::env::split_paths);
    let files = files.filter(|path| path.is_file() && is_hidden(path));
    dirs.into_iter().chain(tools).chain(certificates).chain(files).map(Mount::Read).collect()
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

    /// The policy shows the parent of the data directory and of the policy, also through a link.
    #[test]
    fn no_link_shows_what_is_hidden() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        let (real, link) = (root.join("real"), root.join("link"));
        fs::create_dir_all(real.join("data")).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let mut view = view();
        view.data = real.join("data");
        view.inside = Vec::new();
        view.outside = vec![
            Mount::Write(link.clone()),
            Mount::Instead("/dev/null".into(), real.join("policy.toml")),
        ];
        let words = view.words(Path::new("/bin/sh")).unwrap();
        let has = |expected: &[&Path]| {
            words
                .windows(expected.len())
                .any(|found| expected.iter().zip(found).all(|(one, other)| one == other))
        };
        for at in [&real, &link] {
            assert!(has(&[Path::new("--bind"), &real, at]), "{words:?}");
            assert!(has(&[Path::new("--tmpfs"), &at.join("data")]), "{words:?}");
            assert!(has(&[Path::new("--remount-ro"), &at.join("data")]), "{words:?}");
            assert!(has(&[Path::new("/dev/null"), &at.join("policy.toml")]), "{words:?}");
        }
    }

    #[test]
    fn no_link_of_a_job_redirects_a_mount() {
        let (dir, tmp) = (tempfile::tempdir_in("/tmp").unwrap(), tempfile::tempdir().unwrap());
        let shown = dir.path().join("shown");
        fs::create_dir(&shown).unwrap();
        let mut view = view();
        (view.tmp, view.outside) = (tmp.path().to_owned(), vec![Mount::Read(shown.clone())]);
        view.words(Path::new("/bin/sh")).unwrap();
        let of_job = tmp.path().join(shown.strip_prefix("/tmp").unwrap());
        fs::create_dir(of_job.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("../../../oldroot/etc", &of_job).unwrap();
        let error = view.words(Path::new("/bin/sh")).unwrap_err().to_string();
        assert!(error.contains("put a link in the place of /tmp/"), "{error}");
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
