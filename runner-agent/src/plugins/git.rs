//! Sources in git repositories, with the system's git: resolves a reference to a commit, and
//! fetches the files that a component needs.
//!
//! ```text
//! resolve  ls-remote ─▶ output `commit`
//! build    fetch one commit without blobs ─▶ list its tree ─▶ fetch the needed blobs ─▶ files
//!                                               └── links, references, submodules ──┘
//! ```
//!
//! Git never checks out a file: the runner writes the files itself. Therefore filters, links and
//! file names of a repository have no effect on the runner's host. The runner passes the pointers of
//! git LFS to git-lfs, and verifies its output.

mod command;
mod commit;
mod fetch;
mod lfs;
mod references;
mod repository;
mod submodules;
mod tree;

pub(crate) use command::agent_environment;
pub(super) use fetch::fetch;

use domain::git::{HEAD, check_reference, url, without_userinfo};
use schemas::runner::JobKind;
use serde_json::{Map, Value};

use self::{command::Git, commit::find};
use super::{
    contract::{PluginError, Sink, Stream},
    plugin::{Description, Halt, Outputs, Plugin, Work},
};

/// Plugin `git`, which resolves references.
pub(crate) struct GitPlugin;

impl Plugin for GitPlugin {
    fn describe(&self) -> Description {
        Description { name: "git".into(), kinds: vec![JobKind::Resolve] }
    }

    async fn health(&mut self, _: &Work<'_>, _: &mut dyn Sink) -> Result<(), Halt> {
        Ok(())
    }

    async fn resolve(&mut self, work: &Work<'_>, sink: &mut dyn Sink) -> Result<Outputs, Halt> {
        let reference = work.input("ref").unwrap_or(HEAD);
        let refused = |error: domain::git::GitAddressError| PluginError::Refused(error.to_string());
        let address = url(work.name).map_err(refused)?;
        check_reference(reference).map_err(refused)?;
        let shown = without_userinfo(work.name);
        let git = Git::new(work, "git", &address, sink).await?;
        let found = find(&git, reference, sink).await;
        let what = format!("cannot read {shown} at {reference}");
        let remedy =
            "check the address, and the network and the git credentials of the build runner";
        let found = found.map_err(|error| error.with_remedy(remedy).into_halt(&what))?;
        let Some((_, commit)) = found else {
            let detail = format!(
                "{shown} has no branch and no tag {reference}; correct `branch` in the config"
            );
            return Err(Halt::exit(1, detail));
        };
        sink.line(Stream::Runner, format!("{shown} at {reference} is {commit}").as_bytes());
        let plain = Map::from_iter([("commit".to_owned(), Value::from(commit))]);
        Ok(Outputs { plain, ..Outputs::default() })
    }
}
