//! Build: checks a kustomization before any install gets it. The runner packs the source unchanged.

use schemas::plugin::CallContext;
use serde::Deserialize;

use crate::{
    failure::Outcome,
    kustomize, report,
    settings::{Kustomize, read_inputs},
};

/// Inputs of a build. A kustomization with templates is absent: only an install has their values.
#[derive(Debug, Deserialize)]
struct Inputs {
    #[serde(default)]
    kustomization: Option<Kustomize>,
}

/// Builds the kustomization, and parses its objects.
///
/// # Errors
/// An error of the tool, which names the file.
pub async fn run(context: &CallContext) -> Outcome<()> {
    let Inputs { kustomization } = read_inputs(context)?;
    let Some(kustomization) = kustomization else { return Ok(()) };
    if kustomize::find_tool().is_err() {
        report::log(
            "did not build the kustomization: neither kustomize nor kubectl is installed on the \
             build runner's host; the plan of each install builds it",
        );
        return Ok(());
    }
    let objects = kustomize::build(&context.source_dir, &context.work_dir, &kustomization).await?;
    let plural = if objects.len() == 1 { "" } else { "s" };
    let (path, number) = (&kustomization.path, objects.len());
    report::log(format!("the kustomization {path} contains {number} object{plural}"));
    Ok(())
}
