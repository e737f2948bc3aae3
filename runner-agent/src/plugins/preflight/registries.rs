//! Checks of the registries that receive the images of a run.

use std::collections::{BTreeMap, BTreeSet};

use domain::image::COMPONENT_TYPES;
use schemas::{
    preflight::Rendered,
    runner::{CheckStatus, JobKind},
};

use super::{
    super::{
        contract::Sink,
        image::{self, Destination, SANDBOX},
        plugin::{Halt, Operation, Work},
    },
    Preflight,
};
use crate::images::RegistryChoice;

impl Preflight<'_> {
    /// Checks each registry once, with the credentials that the copies would use. Otherwise a run
    /// would fail at its first image, after changes of other components.
    pub(super) async fn check_registries(
        &mut self,
        allowed: &BTreeSet<usize>,
        sink: &mut dyn Sink,
    ) -> Result<(), Halt> {
        let jobs = self.jobs;
        let images = allowed.iter().filter(|at| {
            let job = &jobs[**at];
            COMPONENT_TYPES.contains(&job.plugin.name.as_str())
                && job.kinds.contains(&JobKind::Sync)
                && matches!(job.rendered, Rendered::Known { .. })
        });
        // The components of each registry, and of the host's own layout.
        let mut of_host: BTreeMap<Option<String>, Vec<usize>> = BTreeMap::new();
        for at in images {
            let (_, manifest, context) = self.component(*at);
            let work = Work::new(&manifest, &context)?;
            if work.operation == Operation::Destroy {
                continue;
            }
            match Destination::of(&work).await {
                Ok(destination) => {
                    let host = destination.host().map(str::to_owned);
                    of_host.entry(host).or_default().push(*at);
                }
                Err(halt) => {
                    let message = self.failure(halt)?;
                    self.add(Some(&jobs[*at].name), "registry", CheckStatus::Failed, message);
                }
            }
        }
        for (host, images) in of_host {
            let checked = self.check_registry(host.as_deref(), &images, sink).await;
            let (status, message) = match checked {
                Ok(found) => found,
                Err(halt) => (CheckStatus::Failed, self.failure(halt)?),
            };
            let names: Vec<&str> = images.iter().map(|at| jobs[*at].name.as_str()).collect();
            self.add(None, "registry", status, format!("{message} (for {})", names.join(", ")));
        }
        Ok(())
    }

    /// Checks the destination of these images, of which there is at least one.
    async fn check_registry(
        &self,
        host: Option<&str>,
        images: &[usize],
        sink: &mut dyn Sink,
    ) -> Result<(CheckStatus, String), Halt> {
        let built = images.iter().find(|at| !self.jobs[**at].artifacts.is_empty());
        let (_, manifest, context) = self.component(*built.unwrap_or(&images[0]));
        let work = Work::new(&manifest, &context)?;
        let destination = Destination::of(&work).await?;
        let Some(host) = host else {
            let is_of_sandbox = matches!(context.images.registry, RegistryChoice::Sandbox);
            if is_of_sandbox && self.jobs.iter().any(|job| job.name == SANDBOX) {
                let why =
                    "the outputs of the sandbox can name it; the plan of each image checks it";
                return Ok((CheckStatus::Deferred, why.into()));
            }
            return Ok((CheckStatus::Ok, destination.warning(&work).unwrap_or_default()));
        };
        if built.is_none() {
            let why = "no build of an image has ended; the plan of each image checks it";
            return Ok((CheckStatus::Deferred, format!("{host}: {why}")));
        }
        image::probe(&work, &destination, sink).await?;
        Ok((CheckStatus::Ok, format!("{host} accepts the credentials of this runner")))
    }
}
