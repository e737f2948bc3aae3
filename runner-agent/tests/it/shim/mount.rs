//! Separate file systems for parts of the data directory.
use super::*;

/// Mounted tmpfs, which is unmounted at the end.
pub struct Mount(std::path::PathBuf);

impl Mount {
    /// Mounts a tmpfs with these options. If mounting is not permitted, prints a message and
    /// returns `None`; in CI, fails.
    pub fn at(path: &std::path::Path, options: &str) -> Option<Mount> {
        let mounted = mount(path, options);
        if !mounted {
            skip("mounting a tmpfs is not permitted");
        }
        mounted.then(|| Mount(path.to_owned()))
    }

    /// Changes the mount options.
    pub fn again(&self, options: &str) {
        assert!(mount(&self.0, &format!("remount,{options}")));
    }

    /// Creates files until no more can be created.
    pub fn fill(&self) {
        let full = (0..10_000)
            .find_map(|number| fs::File::create(self.0.join(format!("filled-{number}"))).err());
        assert_eq!(full.unwrap().kind(), std::io::ErrorKind::StorageFull);
    }
}

fn mount(path: &std::path::Path, options: &str) -> bool {
    let mut mount = Command::new("mount");
    let mount = mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(path).output();
    mount.is_ok_and(|done| done.status.success())
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}
