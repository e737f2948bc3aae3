//! An event in the words of the Open Cybersecurity Schema Framework 1.3.0, for whoever collects the events of many products
//! in one place: <https://schema.ocsf.io/1.3.0/classes/entity_management>.
//!
//! Every event is a change of one aggregate, which is what the class Entity Management is for. What the framework has
//! no word for is in `unmapped`. Nothing can be proven with this: leaf and position lead back to what can.
use domain::actor::Actor;
use event_log::Meta;
use schemas::control::audit::EventRecord;
use serde_json::{Value, json};

/// The version of the framework.
const VERSION: &str = "1.3.0";
const CATEGORY: (u64, &str) = (3, "Identity & Access Management");
const CLASS: (u64, &str) = (3004, "Entity Management");
const INFORMATIONAL: (u64, &str) = (1, "Informational");

/// One event of the log of this origin.
///
/// # Errors
/// If its payload or metadata is not what a log holds.
pub(crate) fn of(origin: &str, event: &EventRecord) -> serde_json::Result<Value> {
    let (kind, id) = event.stream.split_once('/').unwrap_or((&event.stream, ""));
    let activity = if event.sequence == 1 { (1, "Create") } else { (3, "Update") };
    let payload: Value = serde_json::from_str(event.payload.get())?;
    let meta: Meta = serde_json::from_str(event.metadata.get())?;
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

/// An attribute without a value is left out: the framework knows no null.
fn known(mut attributes: Value) -> Value {
    if let Value::Object(attributes) = &mut attributes {
        attributes.retain(|_, value| !value.is_null());
    }
    attributes
}

/// A person, a token or a runner is a user; what the server does by itself is an application.
fn actor(actor: &Actor) -> Value {
    match actor {
        Actor::Principal(_) | Actor::Runner(_) => json!({"user": {"uid": actor.to_string()}}),
        Actor::Policy(_) | Actor::Timer(_) | Actor::System => {
            json!({"app_name": actor.to_string()})
        }
    }
}
