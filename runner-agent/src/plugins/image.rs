//! Component type `container_image`: copies an image by digest.
//!
//! ```text
//! build  upstream ──▶ server's or vendor's registry   resolves the tag, once
//! plan   digest of the artifact ⇄ digest in the registry of the install
//! sync   server's registry ──▶ registry of the install, or the layout of the runner
//! ```
//!
//! A destroy deletes nothing in a registry: its owner decides about retention.

mod destination;

use std::{collections::BTreeMap, fs, io, sync::Arc};

use domain::{
    artifact::Upstream,
    digest::Digest,
    image::{COMPONENT_TYPES, ImageReference, ImageSource, Platform},
};
use oci_registry::{Endpoint, RegistryError, Source, Target, Tree, fetch, resolve};
use schemas::{
    manifest::ArtifactRef,
    runner::{Artifact, JobKind},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

pub(super) use self::destination::{Destination, SANDBOX};
use super::{
    contract::{PluginError, Sink, Stream},
    details,
    dispatch::report,
    plans,
    plugin::{
        Action, AttributeDetails, Changes, Description, DetailValue, Halt, IoContext, Operation,
        Outputs, PlanDetails, Planned, ResourceChange, ResourceDetails, Work,
    },
    transfer::{BuildRegistry, logged_in, or_cancelled, registry_error, server, transfer},
    work::write_private,
};
use crate::{host, state::StateMark};

/// Disk space that a copy to the runner's host leaves free, for states and logs.
const RESERVE_BYTES: u64 = 512 << 20;
/// Name and version of the tool in plans.
const TOOL: &str = concat!("stead-runner ", env!("CARGO_PKG_VERSION"));

/// Plan file: the copy that an approval covers.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct CopyPlan {
    operation: Operation,
    /// Image to copy. Absent for a destroy.
    image: Option<Digest>,
    destination: Destination,
}

/// Runs a job of a container image.
pub(super) async fn run(work: &Work<'_>, sink: &mut dyn Sink) -> Result<(), Halt> {
    match work.manifest.kind {
        JobKind::Build => build(work, sink).await,
        JobKind::Plan => plan(work, sink).await,
        JobKind::Sync => sync(work, sink).await,
        kind @ (JobKind::Resolve | JobKind::Preflight | JobKind::Apply | JobKind::Action) => {
            let kinds = vec![JobKind::Build, JobKind::Plan, JobKind::Sync];
            Err(Description { name: COMPONENT_TYPES[0].into(), kinds }.unsupported(kind))
        }
    }
}

async fn build(work: &Work<'_>, sink: &mut dyn Sink) -> Result<(), Halt> {
    let refused = |what: String| PluginError::Refused(format!("cannot build the image: {what}"));
    let image = serde_json::from_value::<ImageSource>(work.manifest.inputs["image"].clone());
    let image =
        image.map_err(|error| refused(format!("the manifest names no valid image: {error}")))?;
    let repository = work
        .input("repository")
        .ok_or_else(|| refused("the manifest names no repository".into()))?;
    let reference: ImageReference =
        image.reference.parse().map_err(|error| refused(format!("{error}")))?;
    let platforms = image.platforms.iter().map(|text| text.parse::<Platform>());
    let platforms: Vec<Platform> =
        platforms.collect::<Result<_, _>>().map_err(|error| refused(error.to_string()))?;
    sink.phase("resolve");
    let settings = &work.job.images;
    let registry = BuildRegistry::of(work)?;
    let upstream = settings.upstream(reference.host(), reference.name());
    let (endpoint, name) = upstream.map_err(registry_error)?;
    let endpoint = logged_in(endpoint, work, sink).await?;
    if settings.mirrors.contains_key(reference.host()) {
        let line =
            format!("reading images of {} from the mirror {}", reference.host(), endpoint.host());
        sink.line(Stream::Runner, line.as_bytes());
    }
    let (upstream, tree) = resolved(work, &endpoint, &name, (&reference, &platforms)).await?;
    let line =
        format!("{reference} is {upstream}; for {}: {}", image.platforms.join(", "), tree.digest);
    sink.line(Stream::Runner, line.as_bytes());
    let target = registry.target(work, repository, &tree.digest, sink).await?;
    let source = Source::Registry { endpoint: Arc::new(endpoint), name };
    transfer(work, &source, &target, &tree, sink).await?;
    let artifact = Artifact {
        repository: repository.to_owned(),
        digest: tree.digest.clone(),
        size_bytes: tree.size(),
        upstream: Some(Upstream {
            repository: reference.repository(),
            tag: reference.tag().map(str::to_owned),
            digest: upstream,
        }),
    };
    sink.artifact(artifact).doing(|| "cannot report an artifact".into())?;
    Ok(())
}

/// Resolves a reference. An error names the option for a mirror.
async fn resolved(
    work: &Work<'_>,
    endpoint: &Endpoint,
    name: &str,
    (reference, platforms): (&ImageReference, &[Platform]),
) -> Result<(Digest, Tree), Halt> {
    let doing = async { Ok(resolve(endpoint, name, reference, platforms).await) };
    match or_cancelled(work, doing).await? {
        Err(
            error @ (RegistryError::Unreachable { .. }
            | RegistryError::WrongDigest { .. }
            | RegistryError::Status { status: 429, .. }),
        ) => {
            let host = reference.host();
            let hint = format!("{error}, or name a mirror: --registry-mirror {host}=URL");
            Err(PluginError::ArtifactUnavailable(hint).into())
        }
        resolved => resolved.map_err(registry_error),
    }
}

async fn plan(work: &Work<'_>, sink: &mut dyn Sink) -> Result<(), Halt> {
    let destination = Destination::of(work).await?;
    let (plan, mut changes) = match work.operation {
        Operation::Apply => {
            let image = artifact(work)?;
            sink.phase("plan");
            explain(work, &destination, sink);
            let target = destination.target(work, Arc::default(), sink).await?;
            let present = or_cancelled(work, target.has(&image.digest)).await?;
            let changes = changes(work, &destination, &image.digest, present);
            let image = Some(image.digest.clone());
            (CopyPlan { operation: Operation::Apply, image, destination }, changes)
        }
        Operation::Destroy => {
            let resources = vec![ResourceChange {
                address: destination.address(work),
                action: Action::Forget,
                attributes: vec![],
            }];
            let line = "the registry keeps the image: its owner decides about retention";
            sink.line(Stream::Runner, line.as_bytes());
            let changes = Changes { noop: true, resources, ..Changes::default() };
            (CopyPlan { operation: Operation::Destroy, image: None, destination }, changes)
        }
    };
    let file = work.job.work_dir.join("image.plan");
    let bytes = serde_json::to_vec(&plan).map_err(io::Error::from);
    write_private(&file, &bytes.doing(|| "cannot write the plan".into())?)?;
    let noop = changes.noop;
    let (extra_files, tool, tool_digest) = (BTreeMap::new(), TOOL.into(), None);
    let details = changes.details.take().and_then(|details| details::prepare(details, sink));
    let planned = Planned { file, extra_files, tool, tool_digest, changes };
    let record = plans::store(work, planned, details, StateMark::default())?;
    let line = match noop {
        true => format!("no changes: plan {}", record.digest),
        false => {
            format!("{} to add, {} to change: plan {}", record.add, record.change, record.digest)
        }
    };
    sink.line(Stream::Runner, line.as_bytes());
    sink.plan(record).doing(|| "cannot report a plan".into())?;
    match &plan.image {
        Some(image) if noop && !work.is_check => {
            report(plan.destination.outputs(work, image)?, sink)
        }
        Some(_) | None => Ok(()),
    }
}

/// Requests the image from its destination, with the credentials that a copy would use.
pub(super) async fn probe(
    work: &Work<'_>,
    destination: &Destination,
    sink: &mut dyn Sink,
) -> Result<(), Halt> {
    let target = destination.target(work, Arc::default(), sink).await?;
    or_cancelled(work, target.has(&artifact(work)?.digest)).await.map(drop)
}

/// Copies the image of an approved plan. A repeated sync sends only what is missing, so a lost job
/// can run again.
async fn sync(work: &Work<'_>, sink: &mut dyn Sink) -> Result<(), Halt> {
    let no_plan = || PluginError::Refused("cannot sync: the manifest has no approved plan".into());
    let approved = work.manifest.plan.as_ref().ok_or_else(no_plan)?;
    let (approved, _) = plans::find(work, approved)?;
    let bytes = fs::read(&approved.file).doing(|| "cannot read the plan".into())?;
    let plan: CopyPlan = serde_json::from_slice(&bytes)
        .map_err(io::Error::from)
        .doing(|| "cannot read the plan".into())?;
    let destination = Destination::of(work).await?;
    if plan.destination != destination {
        let why = "the registry of the install has changed".to_owned();
        return Err(PluginError::PlanStale(why).into());
    }
    let Some(image) = &plan.image else {
        destination::forget(work)?;
        return report(Outputs::default(), sink);
    };
    let artifact = artifact(work)?;
    if artifact.digest != *image {
        return Err(PluginError::PlanStale("the artifact has changed".into()).into());
    }
    sink.phase("sync");
    explain(work, &destination, sink);
    let (endpoint, name) = (server(work)?, artifact.repository.clone());
    let tree = or_cancelled(work, fetch(&endpoint, &name, image)).await?;
    let source = Source::Registry { endpoint, name };
    let known = Arc::new(destination::known_blobs(work, &destination));
    let target = destination.target(work, known, sink).await?;
    if let Target::Layout { layout, .. } = &target {
        let missing = tree.blobs.iter().filter(|blob| !layout.has(&blob.digest));
        let missing = missing.fold(0_u64, |size, blob| size.saturating_add(blob.size));
        require_space(missing, host::disk_free(&work.job.work_dir))?;
    }
    transfer(work, &source, &target, &tree, sink).await?;
    if let Target::Layout { layout, .. } = &target {
        layout.touch(image, host::system_time());
    }
    destination::record(work, &destination, &tree)?;
    report(destination.outputs(work, image)?, sink)
}

/// Refuses an image that would fill the disk of the runner.
fn require_space(size: u64, free: u64) -> Result<(), PluginError> {
    if size.saturating_add(RESERVE_BYTES) <= free {
        return Ok(());
    }
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    Err(PluginError::Refused(format!(
        "cannot copy the image: it needs {} MiB, and {} MiB of the runner's disk are free; free disk space, or start the \
         runner with --registry oci://HOST/PREFIX",
        mib(size),
        mib(free)
    )))
}

fn changes(work: &Work<'_>, destination: &Destination, image: &Digest, present: bool) -> Changes {
    let (action, add, change) = match work.present {
        true => (Action::Update, 0, 1),
        false => (Action::Create, 1, 0),
    };
    if present {
        return Changes { noop: true, ..Changes::default() };
    }
    let address = format!("{}@{image}", destination.address(work));
    let former = destination::last_image(work).filter(|_| work.present);
    let details = Some(digest_details((&address, action), former.as_ref(), image));
    let resources = vec![ResourceChange { address, action, attributes: vec!["digest".into()] }];
    Changes { add, change, resources, details, ..Changes::default() }
}

/// Returns the digest before and after the sync. The former image is unknown if another runner copied
/// it.
fn digest_details(
    (address, action): (&str, Action),
    former: Option<&Digest>,
    image: &Digest,
) -> PlanDetails {
    let shown = |digest: &Digest| DetailValue::of(&json!(digest));
    let digest = AttributeDetails {
        path: "digest".into(),
        before: former.map(shown),
        after: Some(shown(image)),
        replaces: false,
    };
    let (address, attributes) = (address.to_owned(), vec![digest]);
    let resources = vec![ResourceDetails { address, action, attributes, omitted: 0 }];
    PlanDetails { resources, ..PlanDetails::default() }
}

/// Logs the destination of the image, and a warning if clusters cannot pull it.
fn explain(work: &Work<'_>, destination: &Destination, sink: &mut dyn Sink) {
    if let Some(line) = destination.warning(work) {
        sink.line(Stream::Runner, line.as_bytes());
    }
}

/// Returns the image that the job deploys.
fn artifact<'a>(work: &Work<'a>) -> Result<&'a ArtifactRef, PluginError> {
    let refused = || PluginError::Refused("cannot deploy: the manifest has no image".into());
    work.manifest.artifacts.first().ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_have_the_digest_before_and_after() {
        let digest =
            |digit: &str| -> Digest { format!("sha256:{}", digit.repeat(64)).parse().unwrap() };
        let shown = |former: Option<&Digest>| {
            let details = digest_details(("r/web", Action::Update), former, &digest("b"));
            serde_json::to_value(&details.resources[0].attributes).unwrap()
        };
        let after = json!({ "value": digest("b") });
        assert_eq!(
            shown(Some(&digest("a"))),
            json!([{ "path": "digest", "before": { "value": digest("a") }, "after": after }])
        );
        assert_eq!(shown(None), json!([{ "path": "digest", "after": after }]));
    }

    #[test]
    fn an_image_leaves_space_on_the_disk() {
        assert!(require_space(1 << 20, RESERVE_BYTES + (1 << 20)).is_ok());
        let error = require_space(1 << 20, RESERVE_BYTES).unwrap_err().to_string();
        assert!(error.contains("needs 1 MiB") && error.contains("--registry oci://"), "{error}");
        assert!(require_space(u64::MAX, u64::MAX - 1).is_err());
    }
}
