//! Converts rows of runners to the API type.
use projections::views::runners;
use schemas::control::runners::Runner;

use super::variant_name;
use crate::queries::lookup::Lookup;

/// Converts a runner with its claimed jobs. Returns `None` before enrolment.
pub(crate) async fn runner(
    lookup: &mut Lookup<'_>,
    row: &runners::Row,
) -> Result<Option<Runner>, sqlx::Error> {
    let Some(identity) = &row.state.identity else { return Ok(None) };
    let install = match row.install() {
        Some(install) => lookup.install(install).await?,
        None => None,
    };
    let jobs = lookup.claimed_jobs(row.runner).await?.to_vec();
    let (host, contact) = (&identity.host, lookup.contact(row.runner));
    let hostname = host.hostname.as_deref().map(|name| format!(" ({name})")).unwrap_or_default();
    Ok(Some(Runner {
        id: row.runner,
        mode: variant_name(&identity.mode),
        install: row.install(),
        install_name: install.map(|install| install.state.name.clone()),
        state: row.state_name().into(),
        disabled_by: row.state.disabled.iter().map(variant_name).collect(),
        reason: row.reason.clone(),
        identity_key: identity.identity_key.clone(),
        version: identity.version.clone(),
        host: format!("{}/{}{hostname}", host.os, host.arch),
        online: contact.map(|contact| contact.online),
        last_contact: contact.and_then(|contact| contact.last).or(row.state.disconnected_since),
        session: lookup.session(row.runner),
        jobs,
        enrolled_at: row.enrolled_at,
        disconnected_since: row.state.disconnected_since,
    }))
}
