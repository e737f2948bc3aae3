//! Filesystems of their own for a part of the data directory.
use super::*;

/// A mounted tmpfs; unmounted at the end.
pub struct Mount(std::path::PathBuf);

impl Mount {
    /// `None`, with a message, where mounting is not permitted; under CI that is a failure.
    pub fn at(path: &std::path::Path, options: &str) -> Option<Mount> {
        let mounted = mount(path, options);
        if !mounted {
            skip("mounting a tmpfs is not permitted");
        }
        mounted.then(|| Mount(path.to_owned()))
    }

    /// Changes its options.
    pub fn again(&self, options: &str) {
        assert!(mount(&self.0, &format!("remount,{options}")));
    }

    /// Makes files until no other one can be made.
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
