//! Directories of the host that a job does not see.
use std::{
    collections::{BTreeSet, VecDeque},
    ffi::OsString,
    fs,
    path::{Component, Path, PathBuf},
};

use nix::unistd::{User, getuid};

/// Directories that are empty inside. They contain homes with keys and tokens, data of services,
/// and their sockets: a read-only view does not prevent a connection to a socket.
const HIDDEN: [&str; 8] = ["/root", "/home", "/run", "/var/lib", "/srv", "/opt", "/mnt", "/media"];
/// Directories for temporary files, which are the job's own inside.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];
/// Directories without which no program runs.
const SYSTEM: [&str; 10] =
    ["/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/dev", "/proc", "/sys"];

/// Most links in a path, as for the kernel.
pub(super) const LINKS: usize = 40;

/// Files and directories that the view of a job hides. All paths are canonical.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Hidden {
    pub dirs: Vec<PathBuf>,
    /// Single files.
    pub files: Vec<PathBuf>,
    pub temporary: Vec<PathBuf>,
}

impl Hidden {
    /// Returns what this host hides from jobs of the user that runs this program.
    pub fn of_host() -> Hidden {
        let of_user = User::from_uid(getuid()).ok().flatten().map(|user| user.dir);
        let homes = std::env::var_os("HOME").map(PathBuf::from).into_iter().chain(of_user);
        Hidden::of(&HIDDEN, homes)
    }

    fn of(always: &[&str], homes: impl Iterator<Item = PathBuf>) -> Hidden {
        let mut dirs: BTreeSet<PathBuf> = existing(always).into_iter().collect();
        let temporary = existing(&TEMPORARY);
        let mut files = Vec::new();
        for home in homes.filter_map(|home| fs::canonicalize(home).ok()) {
            if !is_system(&home) {
                dirs.insert(home);
                continue;
            }
            // Without this directory nothing runs, so only the files of a user in it are hidden.
            for path in files_of_user(&home) {
                if path.is_dir() {
                    dirs.insert(path);
                } else {
                    files.push(path);
                }
            }
        }
        let own: Vec<_> = dirs
            .iter()
            .filter(|dir| !is_system(dir) && !temporary.iter().any(|outer| dir.starts_with(outer)))
            .filter(|dir| !dirs.iter().any(|outer| outer != *dir && dir.starts_with(outer)))
            .cloned()
            .collect();
        Hidden { dirs: own, files, temporary }
    }

    /// Returns whether the view hides this path unless a mount shows it.
    pub fn contains(&self, path: &Path) -> bool {
        let path = place(path);
        self.dirs.iter().chain(&self.temporary).any(|hidden| path.starts_with(hidden))
    }
}

/// Returns the canonical paths of those that exist.
fn existing(paths: &[&str]) -> Vec<PathBuf> {
    paths.iter().filter_map(|path| fs::canonicalize(path).ok()).collect()
}

/// Returns the files and directories whose names begin with a dot. The target of a link is not the
/// user's.
fn files_of_user(home: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(home).into_iter().flatten().flatten();
    let own = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with('.'));
    let no_links = own.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()));
    no_links.map(|entry| entry.path()).collect()
}

/// Returns whether a program can need other files of this directory.
pub(super) fn is_needed(dir: &Path) -> bool {
    let usr = Path::new("/usr");
    let is_part_of_usr = dir.parent() == Some(usr);
    is_part_of_usr || SYSTEM.iter().any(|system| Path::new(system).starts_with(dir))
}

/// Returns the places at which a program finds a path in a view with these hidden directories: without
/// links, and as it is after the links that are visible. A hidden link does not exist in the view.
pub(super) fn places(path: &Path, hidden: &Hidden) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut rest: VecDeque<OsString> = names(path).collect();
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            at.pop();
            continue;
        }
        let next = at.join(name);
        let target = fs::read_link(&next).ok().filter(|_| links < LINKS);
        let Some(target) = target else {
            at = next;
            continue;
        };
        links += 1;
        if hidden.contains(&next) && !rest.iter().any(|name| name == "..") {
            found.insert(rest.iter().fold(next, |path, name| path.join(name)));
        }
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        names(&target).rev().for_each(|name| rest.push_front(name));
    }
    found.insert(at);
    found
}

/// Returns the names in a path, without the root and `.`.
fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    let is_name =
        |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().filter(is_name).map(|part| part.as_os_str().to_owned())
}

fn is_system(path: &Path) -> bool {
    path == Path::new("/") || SYSTEM.iter().any(|system| path.starts_with(system))
}

/// Returns the path without links in its directory. The last part may be a link.
pub(super) fn place(path: &Path) -> PathBuf {
    let parts = (path.parent().and_then(|dir| fs::canonicalize(dir).ok()), path.file_name());
    match parts {
        (Some(dir), Some(name)) => dir.join(name),
        (None, _) | (_, None) => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Returns a directory outside of the directories for temporary files, and whether it is one.
    fn outside() -> (tempfile::TempDir, bool) {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let is_temporary =
            existing(&TEMPORARY).iter().any(|outer| place(dir.path()).starts_with(outer));
        (dir, is_temporary)
    }

    #[test]
    fn a_home_is_hidden_wherever_it_is_and_also_behind_a_link() {
        let (dir, is_temporary) = outside();
        let (home, link) = (dir.path().join("real"), dir.path().join("link"));
        fs::create_dir(&home).unwrap();
        symlink(&home, &link).unwrap();
        let hidden = Hidden::of(&[], [link.clone()].into_iter());
        // All directories for temporary files are the job's own.
        let is_listed = hidden.dirs.contains(&fs::canonicalize(&home).unwrap());
        assert_eq!(is_listed, !is_temporary, "{hidden:?}");
        for path in [home.join(".aws"), link.join(".aws"), home] {
            assert!(hidden.contains(&path), "{}", path.display());
        }
        assert_eq!(hidden.contains(&dir.path().join("other")), is_temporary);
    }

    #[test]
    fn a_path_through_hidden_links_has_a_place_at_each_of_them() {
        let (dir, _) = outside();
        let root = fs::canonicalize(dir.path()).unwrap();
        let (home, at) = (root.join("home"), |path: &str| root.join(path));
        for below in ["home/tool/1.2/bin", "visible"] {
            fs::create_dir_all(at(below)).unwrap();
        }
        fs::write(at("home/tool/1.2/bin/tool"), "").unwrap();
        symlink("1.2", at("home/tool/current")).unwrap();
        symlink(at("home/tool/current/bin"), at("home/bin")).unwrap();
        symlink("../home/bin", at("visible/bin")).unwrap();
        let hidden = Hidden { dirs: vec![home], files: Vec::new(), temporary: Vec::new() };
        let real = "home/tool/1.2/bin";
        let cases: [(&str, &[&str]); 5] = [
            (real, &[real]),
            ("home/tool/current/bin", &["home/tool/current/bin", real]),
            ("home/bin", &["home/bin", "home/tool/current/bin", real]),
            // The visible link stays a link.
            ("visible/bin", &["home/bin", "home/tool/current/bin", real]),
            ("visible/../home/bin", &["home/bin", "home/tool/current/bin", real]),
        ];
        for (path, expected) in cases {
            let expected: BTreeSet<_> = expected.iter().map(|path| at(path)).collect();
            assert_eq!(places(&at(path), &hidden), expected, "{path}");
        }
    }

    #[test]
    fn a_directory_of_the_system_stays_visible_also_as_a_home() {
        for home in ["/", "/usr", "/etc"] {
            let hidden = Hidden::of(&HIDDEN, [PathBuf::from(home)].into_iter());
            assert!(!hidden.contains(Path::new("/usr/bin")), "{hidden:?}");
            assert!(!hidden.contains(Path::new("/etc/ssl")), "{hidden:?}");
        }
        assert!(Hidden::of(&HIDDEN, [].into_iter()).contains(Path::new("/var/lib/x.sock")));
    }
}
