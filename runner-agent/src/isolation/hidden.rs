//! Directories of the host that a job does not see.
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
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

/// What the view of a job hides. All paths are canonical.
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
    fn a_directory_of_the_system_stays_visible_also_as_a_home() {
        for home in ["/", "/usr", "/etc"] {
            let hidden = Hidden::of(&HIDDEN, [PathBuf::from(home)].into_iter());
            assert!(!hidden.contains(Path::new("/usr/bin")), "{hidden:?}");
            assert!(!hidden.contains(Path::new("/etc/ssl")), "{hidden:?}");
        }
        assert!(Hidden::of(&HIDDEN, [].into_iter()).contains(Path::new("/var/lib/x.sock")));
    }
}
