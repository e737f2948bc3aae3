//! Recovers the response to a command from its events, if the server failed before it stored the
//! response.
use event_log::StoredEvent;
use schemas::control::{
    ChangeResult,
    installs::{EnrolmentIssued, InstallCreated, InstallUpdated},
    runs::RunRequested,
    tokens::TokenCreated,
    webhooks::WebhookConfigured,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::{
    problem::{Code, Problem},
    state::App,
};

/// Recovers the response from the events at the positions `first` to `last`. `first` is greater
/// than `last` if there are no events.
///
/// # Errors
/// 409 if the response contained data that is not in the events. The problem names the last
/// position.
pub(super) async fn recover_response(
    app: &App,
    route: &str,
    first: u64,
    last: u64,
) -> Result<Value, Problem> {
    let count = u32::try_from((last + 1).saturating_sub(first)).unwrap_or(u32::MAX);
    let events = match count {
        0 => vec![],
        count => app.log().read(first.saturating_sub(1), count).await?,
    };
    let response = Value::Object(known_members(&events, last)?);
    if is_response_of(route, &response) {
        return Ok(response);
    }
    let detail = format!(
        "cannot repeat the response: the change is committed up to position {last}, but a server failed before \
         it stored the response; see `stead audit events`, and do not send the request with another key"
    );
    Err(Problem::new(Code::Conflict, detail).with("position", last))
}

/// Collects the members of a response that the events contain.
fn known_members(events: &[StoredEvent], last: u64) -> Result<Map<String, Value>, Problem> {
    let mut members = Map::new();
    members.insert("position".into(), last.into());
    members.insert("changed".into(), (!events.is_empty()).into());
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
                members.insert((*name).into(), value.clone());
            }
        }
        match &*event.stream.aggregate_type {
            "install" => members.entry("id").or_insert(id),
            "run" => members.entry("run").or_insert(id),
            "access" => {
                if let Some(token) = payload.get("token") {
                    members.insert("id".into(), token.clone());
                }
                members.entry("principal").or_insert(id)
            }
            "webhook" => members.entry("name").or_insert(id),
            _ => continue,
        };
    }
    Ok(members)
}

/// Returns true if the value is a valid response of this route.
fn is_response_of(route: &str, response: &Value) -> bool {
    fn parses_as<T: DeserializeOwned>(response: &Value) -> bool {
        serde_json::from_value::<T>(response.clone()).is_ok()
    }
    match route {
        "/v1/installs" => parses_as::<InstallCreated>(response),
        "/v1/installs/{install}" => parses_as::<InstallUpdated>(response),
        "/v1/installs/{install}/runs" | "/v1/runs/{run}/retry" => {
            parses_as::<RunRequested>(response)
        }
        "/v1/tokens" => parses_as::<TokenCreated>(response),
        "/v1/installs/{install}/enrolment-tokens" | "/v1/runners/enrolment-tokens" => {
            parses_as::<EnrolmentIssued>(response)
        }
        "/v1/webhooks/{webhook}" => parses_as::<WebhookConfigured>(response),
        // These responses contain more than their events.
        "/v1/apps/{app}/sync" | "/v1/builds/{build}/retry" | "/v1/plugins/{plugin}" => false,
        _ => parses_as::<ChangeResult>(response),
    }
}
