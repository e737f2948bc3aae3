//! A small file system that a test can fill. Mounting it needs root.
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

/// A mounted tmpfs, unmounted when dropped.
#[derive(Debug)]
pub struct Disk {
    at: PathBuf,
}

impl Disk {
    /// Mounts a tmpfs at a directory. Returns `None` without the privilege to mount.
    pub fn mount(at: &Path, megabytes: u32) -> Option<Disk> {
        let root = nix::unistd::geteuid().is_root();
        let disk = Disk { at: at.to_owned() };
        (root && disk.tmpfs(&format!("size={megabytes}m"))).then_some(disk)
    }

    /// Directory of the mount.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Sets the size of the file system. Returns false if its files need more.
    pub fn resize(&self, megabytes: u32) -> bool {
        self.tmpfs(&format!("remount,size={megabytes}m"))
    }

    /// Shrinks the file system until only 64 KiB are free. Returns false if that fails.
    ///
    /// # Errors
    /// If its usage cannot be read.
    pub fn fill(&self) -> io::Result<bool> {
        let stat = nix::sys::statvfs::statvfs(&self.at).map_err(io::Error::from)?;
        let used = (stat.blocks() - stat.blocks_free()) * stat.fragment_size();
        Ok(self.tmpfs(&format!("remount,size={}", used + (64 << 10))))
    }

    fn tmpfs(&self, options: &str) -> bool {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&self.at);
        mount.output().is_ok_and(|done| done.status.success())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg("-l").arg(&self.at).status();
        let _gone = fs::remove_dir(&self.at);
    }
}
