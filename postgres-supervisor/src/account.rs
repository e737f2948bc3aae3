//! User that runs Postgres: the current user, or an unprivileged one if the supervisor runs as
//! root.
use std::{
    fs, io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown, lchown},
    path::Path,
};

use nix::unistd::{Gid, Uid, User, geteuid};
use tokio::process::Command;

use crate::{Error, about};

#[derive(Debug, Clone)]
pub enum Account {
    /// User that runs the supervisor.
    Current,
    /// Another user, because the supervisor runs as root.
    Other { uid: Uid, gid: Gid, name: String },
}

impl Account {
    /// Chooses `postgres` or else `nobody` if the supervisor runs as root.
    ///
    /// # Errors
    /// [`Error::NoAccount`].
    pub fn choose() -> Result<Account, Error> {
        if !geteuid().is_root() {
            return Ok(Account::Current);
        }
        let known =
            ["postgres", "nobody"].into_iter().find_map(|name| User::from_name(name).ok()?);
        let user = known.ok_or(Error::NoAccount)?;
        Ok(Account::Other { uid: user.uid, gid: user.gid, name: user.name })
    }

    /// Returns the owner of the cluster in a data directory, or else the owner of the directory. If
    /// both belong to root, chooses as [`Account::choose`] does. Returns [`Account::Current`] if
    /// the supervisor does not run as root.
    ///
    /// # Errors
    /// [`Error`].
    pub fn of(data: &Path) -> Result<Account, Error> {
        if !geteuid().is_root() {
            return Ok(Account::Current);
        }
        let data = fs::canonicalize(data).map_err(about(data.display()))?;
        let cluster = data.join("postgres");
        for path in [&cluster, &data] {
            // Never follows a symbolic link, because the target of the link may belong to another
            // user.
            let found = match fs::symlink_metadata(path) {
                Ok(found) => found,
                Err(why) if why.kind() == io::ErrorKind::NotFound => continue,
                Err(why) => return Err(about(path.display())(why)),
            };
            let (uid, gid) = (Uid::from_raw(found.uid()), Gid::from_raw(found.gid()));
            if uid.is_root() {
                continue;
            }
            return match User::from_uid(uid).ok().flatten() {
                Some(user) => Ok(Account::Other { uid, gid: user.gid, name: user.name }),
                // An existing cluster can run under a user id without a name.
                None if path == &cluster => Ok(Account::Other { uid, gid, name: uid.to_string() }),
                None => {
                    let data = path.display().to_string();
                    Err(Error::Nameless { data, uid: uid.as_raw() })
                }
            };
        }
        Account::choose()
    }

    /// Creates a command that runs as this user, in a process group that terminal signals do not
    /// reach.
    pub(crate) fn command(&self, binary: &Path) -> Command {
        let mut command = Command::new(binary);
        command.process_group(0).env_remove("PGDATA").env("LC_ALL", "C").current_dir("/");
        if let Account::Other { uid, gid, .. } = self {
            command.uid(uid.as_raw()).gid(gid.as_raw());
        }
        command
    }

    /// Changes the owner of a path to this user.
    pub(crate) fn own(&self, path: &Path) -> Result<(), Error> {
        match self {
            Account::Current => Ok(()),
            Account::Other { uid, gid, .. } => {
                lchown(path, Some(uid.as_raw()), Some(gid.as_raw())).map_err(about(path.display()))
            }
        }
    }

    /// Checks that this user can reach the data directory. Changes the mode of the directory itself
    /// if necessary, but not the modes of its parents.
    pub(crate) fn can_enter(&self, data: &Path) -> Result<(), Error> {
        let Account::Other { name, .. } = self else { return Ok(()) };
        let data = fs::canonicalize(data).map_err(about(data.display()))?;
        for above in data.ancestors().skip(1) {
            if !self.passes(above)? {
                let (blocked, user) = (above.display().to_string(), name.clone());
                return Err(Error::Unreachable { blocked, user });
            }
        }
        if !self.passes(&data)? {
            let mut mode = fs::metadata(&data).map_err(about(data.display()))?.permissions();
            mode.set_mode(mode.mode() | 0o011);
            fs::set_permissions(&data, mode).map_err(about(data.display()))?;
        }
        Ok(())
    }

    fn passes(&self, directory: &Path) -> Result<bool, Error> {
        let Account::Other { uid, gid, .. } = self else { return Ok(true) };
        let found = fs::metadata(directory).map_err(about(directory.display()))?;
        let bit = if found.uid() == uid.as_raw() {
            0o100
        } else if found.gid() == gid.as_raw() {
            0o010
        } else {
            0o001
        };
        Ok(found.mode() & bit != 0)
    }
}

/// Changes the owner of a newly opened file to the owner of the data directory, so that this owner
/// can access files that root created.
///
/// # Errors
/// If an operation on the file fails.
pub fn give(file: &fs::File, data: &Path) -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let (owner, found) = (fs::metadata(data)?, file.metadata()?);
    // A file with a hard link elsewhere may belong to another user.
    if found.uid() == 0 && owner.uid() != 0 && found.nlink() == 1 {
        fchown(file, Some(owner.uid()), Some(owner.gid()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_the_postgres_user_cannot_enter_is_named() {
        if !geteuid().is_root() {
            eprintln!("SKIPPED: only root drops to another user");
            return;
        }
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let dir = tempfile::tempdir().unwrap();
        mode(dir.path(), 0o711);
        let closed = dir.path().join("closed");
        let data = closed.join("data");
        fs::create_dir_all(&data).unwrap();
        mode(&closed, 0o700);
        let account = Account::choose().unwrap();
        let refusal = account.can_enter(&data).unwrap_err().to_string();
        assert!(refusal.contains(&format!("cannot enter {}", closed.display())), "{refusal}");
        // The supervisor may change the mode of the data directory itself.
        mode(&closed, 0o711);
        mode(&data, 0o700);
        account.can_enter(&data).unwrap();
    }
}
