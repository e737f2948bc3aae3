//! Entries of `/proc`.
use std::{
    fs,
    io::{self, ErrorKind},
};

use nix::errno::Errno;

/// Entry of `/proc` about one process.
pub(crate) struct Stat {
    pub(crate) pid: u32,
    /// Name of the program, which the process can change.
    pub(crate) name: String,
    /// `false` for a zombie and for a dead process.
    pub(crate) runs: bool,
    pub(crate) parent: u32,
    pub(crate) group: u32,
    pub(super) session: u32,
    pub(crate) start_time: u64,
    pub(crate) threads: u32,
}

impl Stat {
    /// Returns all visible processes. On an error the list is unknown: read it again.
    pub(crate) fn all() -> io::Result<Vec<Self>> {
        let mut all = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            match Stat::of(pid) {
                Ok(stat) => all.push(stat),
                // The process ended meanwhile, or belongs to another user.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::NotFound | ErrorKind::PermissionDenied
                    ) => {}
                Err(error) if error.raw_os_error() == Some(Errno::ESRCH as i32) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let odd = || io::Error::other(format!("cannot parse /proc/{pid}/stat"));
        Stat::read(pid, &text).ok_or_else(odd)
    }

    pub(crate) fn read(pid: u32, text: &str) -> Option<Self> {
        // The other fields follow the name, which may contain spaces and brackets.
        let (name, fields) = text.rsplit_once(')')?;
        let fields: Vec<_> = fields.split_whitespace().collect();
        Some(Stat {
            pid,
            name: name.split_once('(')?.1.into(),
            runs: !fields.first()?.starts_with(['Z', 'X']),
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            start_time: fields.get(19)?.parse().ok()?,
            threads: fields.get(17)?.parse().ok()?,
        })
    }
}
