//! What a view of the host would show although it hides directories: other mounts of a hidden
//! directory, further proc file systems, and sockets elsewhere.
//!
//! A read-only mount does not prevent a connection to a socket. So the directory of a socket is covered.
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs, io,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileTypeExt as _, MetadataExt as _},
    },
    path::{Path, PathBuf},
};

use nix::unistd::getuid;

use super::hidden::{Hidden, is_needed, place};

/// File systems that every sandbox has of its own.
const OWN: [&str; 2] = ["/dev", "/proc"];

/// Mode of a directory in which every user can rename directories.
const EVERYONE_WRITES: u32 = 0o002;

/// Mounts of the host.
#[derive(Debug)]
struct Mounts(Vec<MountPoint>);

#[derive(Debug)]
struct MountPoint {
    device: String,
    /// Directory of the file system that is mounted.
    root: PathBuf,
    at: PathBuf,
    is_proc: bool,
}

/// Files and directories that a view must hide in addition.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Leaks {
    /// Directories, those with sockets included.
    pub dirs: BTreeSet<PathBuf>,
    pub files: BTreeSet<PathBuf>,
}

impl Leaks {
    /// Searches this host. `shown` are the paths that the policy shows with their sockets.
    pub(super) fn of_host(hidden: &Hidden, data: &Path, shown: &[PathBuf]) -> io::Result<Leaks> {
        let mounts = Mounts::of_host()?;
        let mut leaks = Leaks::default();
        let is_own = |path: &Path| OWN.iter().any(|own| path.starts_with(own));
        let is_out = |path: &Path| path.starts_with(data) || hidden.contains(path) || is_own(path);
        let dirs = hidden.dirs.iter().chain(&hidden.temporary).map(PathBuf::as_path).chain([data]);
        for alias in dirs.flat_map(|dir| mounts.aliases(dir)).filter(|alias| !is_out(alias)) {
            leaks.dirs.insert(alias);
        }
        leaks.dirs.extend(mounts.proc().filter(|at| !is_out(at)).map(Path::to_owned));
        for alias in hidden.files.iter().flat_map(|file| mounts.aliases(file)) {
            leaks.files.insert(alias);
        }
        let is_shown = |path: &Path| shown.iter().any(|dir| path.starts_with(dir));
        for socket in sockets(&fs::read("/proc/net/unix")?) {
            let socket = place(&socket);
            let is_socket = |path: &Path| {
                fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
            };
            let places = mounts.aliases(&socket).into_iter().chain([socket]);
            for path in places.filter(|path| is_socket(path)) {
                let is_leaked = leaks.dirs.iter().any(|dir| path.starts_with(dir));
                if !(is_out(&path) || is_shown(&path) || is_leaked) {
                    leaks.dirs.insert(covering(&path)?);
                }
            }
        }
        Ok(leaks)
    }
}

/// Returns the directory whose cover hides a socket. A mount over the socket would need its file, which
/// its owner can remove at any time, and so can the owner of a directory above it.
fn covering(socket: &Path) -> io::Result<PathBuf> {
    let is_trusted = |dir: &&Path| {
        fs::metadata(dir).is_ok_and(|found| {
            let is_own = found.uid() == 0 || found.uid() == getuid().as_raw();
            is_own && found.mode() & EVERYONE_WRITES == 0
        })
    };
    let dirs: Vec<&Path> = socket.ancestors().skip(1).collect();
    let first = dirs.iter().rev().find(|dir| !is_trusted(dir)).or(dirs.first());
    first.filter(|dir| !is_needed(dir)).map(|dir| dir.to_path_buf()).ok_or_else(|| {
        let path = socket.display();
        io::Error::other(format!(
            "the socket {path} cannot be hidden from jobs: move it, or show it with `sandbox_read = [\"{path}\"]` in the \
             policy"
        ))
    })
}

impl Mounts {
    fn of_host() -> io::Result<Mounts> {
        Ok(Mounts::parse(&fs::read("/proc/self/mountinfo")?))
    }

    /// Parses `/proc/self/mountinfo`: id, parent, device, root, place, options, optional fields, a
    /// dash, type, source.
    fn parse(text: &[u8]) -> Mounts {
        let of = |line: &[u8]| {
            let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
            let dash = fields.iter().position(|field| *field == b"-")?;
            Some(MountPoint {
                device: String::from_utf8_lossy(fields.get(2)?).into_owned(),
                root: unescaped(fields.get(3)?),
                at: unescaped(fields.get(4)?),
                is_proc: *fields.get(dash + 1)? == b"proc",
            })
        };
        Mounts(text.split(|byte| *byte == b'\n').filter_map(of).collect())
    }

    fn proc(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().filter(|mount| mount.is_proc).map(|mount| mount.at.as_path())
    }

    /// Returns other places of a path, or of a part of it.
    fn aliases(&self, path: &Path) -> Vec<PathBuf> {
        // A later mount hides an earlier one at the same place.
        let holds = |mount: &&MountPoint| path.starts_with(&mount.at);
        let own = self.0.iter().filter(holds).max_by_key(|mount| mount.at.components().count());
        let Some(own) = own else { return Vec::new() };
        let Ok(rest) = path.strip_prefix(&own.at) else { return Vec::new() };
        let inner = own.root.join(rest);
        let same_device = self.0.iter().filter(|mount| mount.device == own.device);
        let candidates = same_device.filter_map(|mount| {
            if let Ok(below) = inner.strip_prefix(&mount.root) {
                return Some((mount.at.join(below), path.to_owned()));
            }
            let part = mount.root.strip_prefix(&inner).ok()?;
            Some((mount.at.clone(), path.join(part)))
        });
        let is_same = |(one, other): &(PathBuf, PathBuf)| {
            let id = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
            id(one).is_some_and(|found| Some(found) == id(other))
        };
        // A joined empty path ends with a slash.
        let plain = |path: PathBuf| path.components().collect::<PathBuf>();
        let found = candidates.filter(is_same).map(|(alias, _)| plain(alias));
        found.filter(|alias| !alias.starts_with(path)).collect()
    }
}

/// Returns a path of mountinfo, in which `\040` stands for a space.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsStr::from_bytes(&bytes))
}

/// Returns the absolute paths in `/proc/net/unix`, whose eighth field is the path.
fn sockets(text: &[u8]) -> BTreeSet<PathBuf> {
    let path = |line: &[u8]| {
        let mut rest = line;
        for _ in 0..7 {
            let begin = rest.iter().position(|byte| *byte != b' ')?;
            let length = rest[begin..].iter().position(|byte| *byte == b' ')?;
            rest = &rest[begin + length..];
        }
        let path = rest.strip_prefix(b" ")?;
        path.starts_with(b"/").then(|| PathBuf::from(OsStr::from_bytes(path)))
    };
    text.split(|byte| *byte == b'\n').filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_paths_of_sockets_are_read_with_spaces_and_without_abstract_ones() {
        let text = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            00000000bacc0768: 00000002 00000000 00010000 0001 01 3250787 /opt/a b.sock\n\
            00000000bacc0769: 00000002 00000000 00010000 0001 01       7 @abstract\n\
            00000000bacc076a: 00000003 00000000 00000000 0001 03    1587\n";
        assert_eq!(sockets(text), [PathBuf::from("/opt/a b.sock")].into());
    }

    #[test]
    fn a_socket_is_hidden_with_the_first_directory_that_others_can_change() {
        // The directory for temporary files belongs to everyone, so this test needs another one.
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        let own = root.join("everyones/own");
        fs::create_dir_all(&own).unwrap();
        let is_temporary = root.starts_with("/tmp") || root.starts_with("/var/tmp");
        if !is_temporary {
            assert_eq!(covering(&own.join("socket")).unwrap(), own);
            let everyones = root.join("everyones");
            fs::set_permissions(&everyones, fs::Permissions::from_mode(0o1777)).unwrap();
            assert_eq!(covering(&own.join("socket")).unwrap(), everyones);
        }
        for path in ["/socket", "/usr/socket", "/usr/lib/socket", "/etc/socket"] {
            let error = covering(Path::new(path)).unwrap_err().to_string();
            assert!(error.contains(&format!("sandbox_read = [\"{path}\"]")), "{error}");
        }
    }

    #[test]
    fn other_places_of_a_directory_are_found_through_mounts_of_its_parents_and_its_parts() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        let data = root.join("data");
        fs::create_dir_all(data.join("keys")).unwrap();
        // Links stand in for mounts, because both have the same inode at two places.
        std::os::unix::fs::symlink(&root, root.join("whole")).unwrap();
        std::os::unix::fs::symlink(data.join("keys"), root.join("key\\040s")).unwrap();
        fs::create_dir_all(root.join("other/data")).unwrap();
        let at = root.display();
        let text = format!(
            "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 8:1 {at} {at}/whole rw shared:3 - ext4 /dev/a rw\n\
             3 1 8:1 {at}/data/keys {at}/key\\134040s rw - ext4 /dev/a rw\n\
             4 1 8:2 {at} {at}/other rw - ext4 /dev/b rw\n5 1 0:4 / /srv/proc\\040 rw - proc proc rw\n"
        );
        let mounts = Mounts::parse(text.as_bytes());
        let found = mounts.aliases(&data);
        assert_eq!(found, [root.join("whole/data"), root.join("key\\040s")]);
        assert_eq!(mounts.proc().collect::<Vec<_>>(), [Path::new("/srv/proc ")]);
    }
}
