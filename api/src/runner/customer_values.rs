//! Sensitive inputs that the customer set on the runner's host. The server records their names, times
//! and users, and refers to them by their ids. It never receives the values.
use std::collections::BTreeMap;

use domain::{
    ids::{InstallId, ValueId},
    install::Install,
    secret::{of_placeholder, placeholder},
};
use schemas::{
    runner::CustomerValue,
    sanitize::sanitize,
    secret::{EncryptedValue, input_name},
};

use super::caller;
use crate::{
    extract::RunnerCaller,
    problem::Problem,
    sensitive,
    state::App,
    usecases::installs::{self, Update},
};

/// Maximum number of values in one request. The server ignores the others.
const MAX_VALUES: usize = 200;
/// Maximum length of a user's name in characters.
const MAX_USER: usize = 128;

/// Records new values as inputs of the install. Returns the ids of those that are its inputs now.
/// Returns `None` if the request has none.
///
/// A value that cannot be an input now, for example during a deploy, is not an error: the runner
/// reports it again.
pub(super) async fn record(
    app: &App,
    runner: &RunnerCaller,
    values: Option<Vec<CustomerValue>>,
) -> Result<Option<Vec<ValueId>>, Problem> {
    let (Some(install), Some(values)) = (runner.install, values) else { return Ok(None) };
    let kept: Vec<ValueId> = values.iter().map(|value| value.id).collect();
    sensitive::delete_removed_by_customer(&app.pool, install, &kept).await?;
    if values.is_empty() {
        return Ok(None);
    }
    let mut recorded = vec![];
    for value in values.into_iter().take(MAX_VALUES) {
        let (id, input) = (value.id, value.input.clone());
        let inputs = app.engine.load::<Install>(install).await?.inputs.clone();
        let is_input = inputs.get(&input).and_then(|text| of_placeholder(text)) == Some(id);
        let stored = match is_input {
            true => sensitive::put(&app.pool, install, &[stored(value)], app.now()).await,
            false => set(app, runner, install, value).await,
        };
        match stored {
            Ok(()) => recorded.push(id),
            Err(problem) => tracing::warn!(
                install.id = %install, input = %sanitize(&input), error = %problem.detail,
                "Cannot record a value that the customer set; the runner reports it again"
            ),
        }
    }
    Ok(Some(recorded))
}

/// Row of a value that stays on the host: it has no ciphertext.
fn stored(value: CustomerValue) -> EncryptedValue {
    let CustomerValue { id, input, consumers, .. } = value;
    let (name, ciphertext) = (input_name(&input), None);
    EncryptedValue { id, name, consumers, signed: true, json: false, ciphertext }
}

async fn set(
    app: &App,
    runner: &RunnerCaller,
    install: InstallId,
    value: CustomerValue,
) -> Result<(), Problem> {
    let (id, input) = (value.id, value.input.clone());
    let (set_at, set_by) = (value.set_at, value.set_by.clone());
    sensitive::put(&app.pool, install, &[stored(value)], app.now()).await?;
    let set_by: String = sanitize(&set_by).chars().take(MAX_USER).collect();
    let at = set_at.format("%Y-%m-%d %H:%M:%S");
    let reason = Some(format!("set on the runner's host by {set_by} at {at} UTC"));
    let set = BTreeMap::from([(input.clone(), placeholder(id))]);
    let update = Update { set, reason, ..Update::default() };
    let call = caller::call(runner, "/runner/v1/sessions");
    installs::update(app, &call, install, update).await.map(drop)
}
