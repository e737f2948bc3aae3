//! Files of one execution.
use std::{
    io,
    path::{Path, PathBuf},
};

use super::directory;

/// The files of one execution.
#[derive(Debug, Clone)]
pub struct JobDir(pub(super) PathBuf);

impl JobDir {
    pub fn root(&self) -> &Path {
        &self.0
    }
    /// The manifest as it was signed.
    pub fn manifest(&self) -> PathBuf {
        self.0.join("manifest.json")
    }
    /// The grant as it was signed.
    pub fn grant(&self) -> PathBuf {
        self.0.join("grant.json")
    }
    pub fn log(&self) -> PathBuf {
        self.0.join("log.ndjson")
    }
    /// The shim's reports, in order.
    pub fn reports(&self) -> PathBuf {
        self.0.join("reports.ndjson")
    }
    /// Cancel request for the shim.
    pub fn cancel(&self) -> PathBuf {
        self.0.join("cancel.json")
    }
    /// Report payloads that are too long for a report, by digest.
    pub fn blobs(&self) -> PathBuf {
        self.0.join("blobs")
    }
    /// Work directory of the plugin process.
    pub fn work(&self) -> PathBuf {
        self.0.join("work")
    }
    /// File with the pending approval request of the job.
    pub fn approval_request(&self) -> PathBuf {
        self.0.join("approval-request.json")
    }
    /// File with the decision on the approval request.
    pub fn approval_decision(&self) -> PathBuf {
        self.0.join("approval-decision.json")
    }
    /// Disk space reserved for the final report.
    pub fn reserve(&self) -> PathBuf {
        self.0.join("reserve")
    }
    /// Temporary files of the plugin process.
    pub fn scratch(&self) -> PathBuf {
        self.0.join("tmp")
    }
    /// Directory of the socket at which scripts register values to redact, while the shim runs. A
    /// sandbox shows it to the job.
    pub fn redact_dir(&self) -> PathBuf {
        self.0.join("redact")
    }
    /// Socket at which scripts register values to redact.
    pub fn redact(&self) -> PathBuf {
        self.redact_dir().join("socket")
    }
    /// Directory that a job in a sandbox sees as `/tmp`.
    pub fn own_tmp(&self) -> PathBuf {
        self.0.join("own-tmp")
    }
    /// Resolver configuration that a job in a sandbox sees.
    pub fn resolver(&self) -> PathBuf {
        self.0.join("resolv.conf")
    }
    /// File with the path of the job's control group, if the job has one.
    pub fn cgroup(&self) -> PathBuf {
        self.0.join("cgroup")
    }
    /// Standard error of the shim, used when it cannot write a log.
    pub fn shim_errors(&self) -> PathBuf {
        self.0.join("shim.stderr")
    }

    /// Creates the job's directory with its subdirectories `blobs` and `work`.
    pub fn create(&self) -> io::Result<()> {
        [self.root(), &self.blobs(), &self.work()].into_iter().try_for_each(directory)
    }
}
