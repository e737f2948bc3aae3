//! Sensitive outputs of a report: ciphertexts that the install signed, which the server stores.
use domain::{
    ids::JobId,
    job::{Job, Origin},
    secret::placeholder,
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

/// Stores the values of a report before its event. The install has its former values until the job
/// succeeds.
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
    sensitive::put(&app.pool, install, values, app.now()).await
}
