//! Converts an event to the Open Cybersecurity Schema Framework (OCSF) 1.3.0, for products that
//! collect events from many sources: <https://schema.ocsf.io/1.3.0/classes/entity_management>.
//!
//! Every event changes one aggregate, which matches the class Entity Management. Hashes and
//! metadata without an OCSF attribute are in `unmapped`. The result contains no proof. Its leaf and
//! position identify the event in the log.
use domain::actor::Actor;
use schemas::control::audit::EventRecord;
use serde::Deserialize;
use serde_json::{Value, json};

/// OCSF version of the converted events.
const VERSION: &str = "1.3.0";
const CATEGORY: (u64, &str) = (3, "Identity & Access Management");
const CLASS: (u64, &str) = (3004, "Entity Management");
const INFORMATIONAL: (u64, &str) = (1, "Informational");

/// Metadata of an event. The server may send more members than these.
#[derive(Deserialize)]
struct Metadata {
    actor: Actor,
    command_id: Option<String>,
    causation_id: Option<String>,
    correlation_id: Option<String>,
    route: Option<String>,
    client: Option<String>,
}

/// Converts one event of the log with this origin.
///
/// # Errors
///
/// If the payload is not JSON, or the metadata is invalid.
pub(crate) fn to_ocsf(origin: &str, event: &EventRecord) -> serde_json::Result<Value> {
    let (kind, id) = event.stream.split_once('/').unwrap_or((&event.stream, ""));
    let activity = if event.sequence == 1 { (1, "Create") } else { (3, "Update") };
    let payload: Value = serde_json::from_str(event.payload.get())?;
    let meta: Metadata = serde_json::from_str(event.metadata.get())?;
    Ok(json!({
        "activity_id": activity.0,
        "activity_name": activity.1,
        "actor": actor(&meta.actor),
        "category_name": CATEGORY.1,
        "category_uid": CATEGORY.0,
        "class_name": CLASS.1,
        "class_uid": CLASS.0,
        "entity": {"type": kind, "uid": id, "version": event.sequence.to_string(), "data": payload},
        "message": event.event_type,
        "metadata": known(json!({
            "correlation_uid": meta.correlation_id,
            "event_code": event.event_type,
            "log_name": origin,
            "log_provider": "Stead",
            "log_version": event.version,
            "original_time": event.recorded_at.to_rfc3339(),
            "product": {"name": "Stead", "vendor_name": "Stead"},
            "sequence": event.position,
            "uid": event.event_id.to_string(),
            "version": VERSION,
        })),
        "severity": INFORMATIONAL.1,
        "severity_id": INFORMATIONAL.0,
        "time": event.recorded_at.timestamp_millis(),
        "type_name": format!("{}: {}", CLASS.1, activity.1),
        "type_uid": CLASS.0 * 100 + activity.0,
        "unmapped": known(json!({
            "causation_id": meta.causation_id,
            "chain": event.chain,
            "client": meta.client,
            "command_id": meta.command_id,
            "leaf": event.leaf,
            "route": meta.route,
        })),
    }))
}

/// Removes attributes without a value, because OCSF has no null.
fn known(mut attributes: Value) -> Value {
    if let Value::Object(attributes) = &mut attributes {
        attributes.retain(|_, value| !value.is_null());
    }
    attributes
}

/// Maps a principal or a runner to a user, and a part of the server to an application.
fn actor(actor: &Actor) -> Value {
    match actor {
        Actor::Principal(_) | Actor::Runner(_) => json!({"user": {"uid": actor.to_string()}}),
        Actor::Policy(_) | Actor::Timer(_) | Actor::System => {
            json!({"app_name": actor.to_string()})
        }
    }
}
