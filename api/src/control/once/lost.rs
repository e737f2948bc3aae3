//! The answer of a command whose server died before it kept one: made again from what it wrote.
use event_log::Stored;
use schemas::control::{
    Done,
    installs::{EnrolmentIssued, InstallCreated, InstallUpdated},
    runs::RunRequested,
    tokens::TokenCreated,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::{
    problem::{Code, Problem},
    state::App,
};

/// What the command was answered, as far as its events say it. `first` is behind `last` when there are
/// none.
///
/// # Errors
/// 409 where an answer says more than the log: what was done, and where it is to be seen.
pub async fn answer(app: &App, route: &str, first: u64, last: u64) -> Result<Value, Problem> {
    let count = u32::try_from((last + 1).saturating_sub(first)).unwrap_or(u32::MAX);
    let events = match count {
        0 => vec![],
        count => app.log().read(first.saturating_sub(1), count).await?,
    };
    let said = Value::Object(told(&events, last)?);
    if fits(route, &said) {
        return Ok(said);
    }
    let detail = format!(
        "this was done, up to position {last}, and its answer was lost with a server; do not send it \
         under another key, `stead audit events` shows what was done"
    );
    Err(Problem::new(Code::Conflict, detail).with("position", last))
}

/// Everything that any answer says and the events know.
fn told(events: &[Stored], last: u64) -> Result<Map<String, Value>, Problem> {
    let mut said = Map::new();
    said.insert("position".into(), last.into());
    said.insert("changed".into(), (!events.is_empty()).into());
    for event in events {
        let id = json!(event.stream.aggregate_id);
        let payload: Value = serde_json::from_str(&event.payload).map_err(Problem::internal)?;
        let names: &[&str] = match &*event.event_type {
            "install.created" => &["name", "app", "config_version"],
            "access.token_issued" => &["expires_at"],
            _ => &[],
        };
        for name in names {
            if let Some(value) = payload.get(name) {
                said.insert((*name).into(), value.clone());
            }
        }
        match &*event.stream.aggregate_type {
            "install" => said.entry("id").or_insert(id),
            "run" => said.entry("run").or_insert(id),
            "access" => {
                if let Some(token) = payload.get("token") {
                    said.insert("id".into(), token.clone());
                }
                said.entry("principal").or_insert(id)
            }
            _ => continue,
        };
    }
    Ok(said)
}

/// Whether it is an answer of this route.
fn fits(route: &str, said: &Value) -> bool {
    fn is<T: DeserializeOwned>(said: &Value) -> bool {
        serde_json::from_value::<T>(said.clone()).is_ok()
    }
    match route {
        "/v1/installs" => is::<InstallCreated>(said),
        "/v1/installs/{install}" => is::<InstallUpdated>(said),
        "/v1/installs/{install}/runs" | "/v1/runs/{run}/retry" => is::<RunRequested>(said),
        "/v1/tokens" => is::<TokenCreated>(said),
        "/v1/installs/{install}/enrolment-tokens" | "/v1/runners/enrolment-tokens" => {
            is::<EnrolmentIssued>(said)
        }
        // What they answer is more than what they write.
        "/v1/apps/{app}/sync" | "/v1/builds/{build}/retry" => false,
        _ => is::<Done>(said),
    }
}
