//! Sensitive outputs of a report: ciphertexts that the install signed, which the server stores.
use app_config::tree::SANDBOX;
use domain::{
    ids::{JobId, ValueId},
    install::Install,
    job::{Job, Origin},
    secret::{of_placeholder, placeholder},
};
use schemas::{
    runner::{ReportBody, VALUES_BYTES},
    secret::{EncryptedValue, consumer_of, output_name},
};

use crate::{
    problem::{Code, Problem},
    sensitive,
    state::App,
};

/// Stores the values of a report before its event. Deletes former values of these outputs, except
/// those that the install has until the job succeeds.
///
/// # Errors
/// If a value does not belong to an output of the job's component.
pub(super) async fn store(app: &App, job: JobId, body: &ReportBody) -> Result<(), Problem> {
    let ReportBody::Outputs { outputs, values } = body else { return Ok(()) };
    if values.is_empty() {
        return Ok(());
    }
    let invalid = |why: &str| {
        Problem::new(Code::Invalid, format!("cannot record the sensitive outputs: {why}"))
    };
    let work = app.engine.load::<Job>(job).await?.work.clone();
    let work = work.ok_or_else(|| Problem::not_found(job))?;
    let install = match work.origin {
        Origin::Step { install, .. } => install,
        Origin::Build { .. } | Origin::Source { .. } | Origin::Preflight { .. } => {
            return Err(invalid("this kind of job has none"));
        }
    };
    let manifest = app.manifests.get(&app.pool, &work.manifest).await?;
    let component = consumer_of(&manifest).component;
    let is_output = |value: &EncryptedValue| {
        let text = placeholder(value.id);
        value.signed
            && value.ciphertext.is_some()
            && outputs.iter().any(|(name, output)| {
                *output == *text && value.name == output_name(&component, name)
            })
    };
    if !values.iter().all(is_output) {
        return Err(invalid(
            "a value is not signed, or is not an output of the component of the job",
        ));
    }
    let size = |value: &EncryptedValue| {
        value.ciphertext.as_ref().map_or(0, |ciphertext| ciphertext.0.len())
    };
    if values.iter().map(size).sum::<usize>() > 2 * VALUES_BYTES {
        return Err(invalid("their ciphertexts are too large"));
    }
    sensitive::put(&app.pool, install, values, app.now()).await?;
    let state = app.engine.load::<Install>(install).await?;
    let has = match component.as_str() {
        SANDBOX => state.sandbox.as_ref().map(|has| &has.outputs),
        name => state.components.get(name).map(|has| &has.outputs),
    };
    for output in outputs.keys() {
        let name = output_name(&component, output);
        let Some(new) = values.iter().find(|value| value.name == name) else { continue };
        let current = has.and_then(|has| of_placeholder(has.get(output)?.as_str()?));
        let kept: Vec<ValueId> = current.into_iter().chain([new.id]).collect();
        sensitive::delete_others(&app.pool, install, &name, &kept).await?;
    }
    Ok(())
}
