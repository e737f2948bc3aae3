//! terraform or tofu, as the runner's operator installed it. Never downloaded.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use nix::sys::signal::Signal;
use serde::Deserialize;

use crate::plugins::{
    contract::{PluginError, Sink, Stream},
    plugin::{Halt, Work},
    process::{self, Spec},
};

/// What to do about a missing tool.
pub(super) const REMEDY: &str = "neither terraform nor tofu is on the runner's PATH; install Terraform 1.0 \
     or later (or OpenTofu) on the runner's host, or start the runner with a PATH that has it";

/// In the order of preference.
const NAMES: [&str; 2] = ["terraform", "tofu"];

/// A tool that is there.
pub(super) struct Tool {
    pub path: PathBuf,
    pub version: String,
    binary: &'static str,
}

impl Tool {
    /// Name and version, as a plan digest has them.
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.binary, self.version)
    }
}

/// Find the tool and ask for its version.
pub(super) async fn find(work: &Work<'_>, sink: &mut dyn Sink) -> Result<Tool, Halt> {
    let environment = work.environment();
    let path = environment.get("PATH").map(String::as_str).unwrap_or_default();
    let Some((binary, path)) = NAMES.into_iter().find_map(|name| Some((name, on(path, name)?)))
    else {
        return Err(PluginError::ToolMissing(REMEDY.into()).into());
    };
    let env = BTreeMap::from([("CHECKPOINT_DISABLE".to_owned(), "1".to_owned())]);
    let args = vec!["version".into(), "-json".into()];
    let dir = work.job.work_dir.clone();
    let spec = Spec { program: path.clone(), args, dir, env, stop: Signal::SIGINT, limit: None };
    let mut said = Vec::new();
    let ended = process::run(&spec, work, sink, |sink, stream, line| match stream {
        Stream::Out => said.extend_from_slice(line),
        Stream::Err | Stream::Runner => sink.line(stream, line),
    });
    ended.await?.well(&format!("{binary} version"))?;
    #[derive(Deserialize)]
    struct Said {
        terraform_version: String,
    }
    let version = serde_json::from_slice::<Said>(&said).map(|said| said.terraform_version);
    let version = version.ok().filter(|version| !version.starts_with("0."));
    let old = || {
        let found = path.display();
        PluginError::ToolMissing(format!("{found} is older than 1.0; install a later version"))
    };
    Ok(Tool { version: version.ok_or_else(old)?, path, binary })
}

fn on(path: &str, name: &str) -> Option<PathBuf> {
    path.split(':').map(|dir| Path::new(dir).join(name)).find(|file| {
        file.is_absolute()
            && fs::metadata(file)
                .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    })
}
