//! A small disk of its own, which can be full. Needs to mount, and so root.
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

/// A mounted tmpfs; it goes with this.
#[derive(Debug)]
pub struct Disk {
    at: PathBuf,
}

impl Disk {
    /// Mount one at that directory. `None` where nobody may.
    pub fn mount(at: &Path, megabytes: u32) -> Option<Disk> {
        let root = nix::unistd::geteuid().is_root();
        let disk = Disk { at: at.to_owned() };
        (root && disk.tmpfs(&format!("size={megabytes}m"))).then_some(disk)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Give it that much room. Whether there is not more on it already.
    pub fn resize(&self, megabytes: u32) -> bool {
        self.tmpfs(&format!("remount,size={megabytes}m"))
    }

    /// Leave no room but for a few more pages.
    ///
    /// # Errors
    /// If nobody says how much there is on it.
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
