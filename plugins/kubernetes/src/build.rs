//! Build: builds a kustomization without templates, and adds its objects to the source, which the runner
//! packs.

use schemas::plugin::CallContext;
use serde::Deserialize;

use crate::{
    failure::Outcome,
    kustomize::{self, shipped},
    report,
    settings::{Kustomize, read_inputs},
};

/// Inputs of a build. A kustomization with templates is absent: only an install has their values.
#[derive(Debug, Deserialize)]
struct Inputs {
    #[serde(default)]
    kustomization: Option<Kustomize>,
}

/// Builds the kustomization, parses its objects, and adds them to the source.
///
/// # Errors
/// An error of the tool, which names the file.
pub async fn run(context: &CallContext) -> Outcome<()> {
    shipped::remove(&context.source_dir)?;
    let Inputs { kustomization } = read_inputs(context)?;
    let Some(kustomization) = kustomization else { return Ok(()) };
    if kustomize::find_tool().is_err() {
        report::log(
            "did not build the kustomization: neither kustomize nor kubectl is installed on the \
             build runner's host; the plan of each install builds it",
        );
        return Ok(());
    }
    let (source, work) = (&context.source_dir, &context.work_dir);
    let output = kustomize::output(source, work, &kustomization).await?;
    let objects = kustomize::parse(&output)?;
    shipped::write(source, &kustomization, output)?;
    let plural = if objects.len() == 1 { "" } else { "s" };
    let (path, number) = (&kustomization.path, objects.len());
    report::log(format!("the kustomization {path} contains {number} object{plural}"));
    Ok(())
}
