//! Redacts and bounds the details of a plan. A plugin of any author supplies them.

use schemas::runner::DETAILS_BYTES;
use serde_json::Value;

use super::{
    contract::{Sink, Stream},
    plugin::{AttributeDetails, DetailValue, PlanDetails, ResourceDetails},
};

/// Longest shown value in bytes, as text or JSON.
const VALUE_BYTES: usize = 4 << 10;
/// Longest address or path in bytes.
const NAME_BYTES: usize = 1 << 10;
/// Maximum number of attributes of one resource.
const MAX_ATTRIBUTES: usize = 500;

/// Returns the details without secret values and within the limits. `None` if output is withheld.
pub(super) fn prepare(details: PlanDetails, sink: &mut dyn Sink) -> Option<PlanDetails> {
    let PlanDetails { resources, outputs, omitted } = details;
    let mut clean = |all: Vec<ResourceDetails>| -> Option<Vec<ResourceDetails>> {
        all.into_iter().map(|one| resource(one, sink)).collect()
    };
    let (resources, outputs) = (clean(resources)?, clean(outputs)?);
    let details = PlanDetails { resources, outputs, omitted }.within(DETAILS_BYTES);
    if details.omitted > 0 {
        let line = format!(
            "the details of the plan are too long: they omit {} resources and outputs",
            details.omitted
        );
        sink.line(Stream::Runner, line.as_bytes());
    }
    Some(details)
}

fn resource(details: ResourceDetails, sink: &mut dyn Sink) -> Option<ResourceDetails> {
    let ResourceDetails { address, action, mut attributes, omitted } = details;
    let more = attributes.len().saturating_sub(MAX_ATTRIBUTES);
    attributes.truncate(MAX_ATTRIBUTES);
    let mut clean = Vec::with_capacity(attributes.len());
    for AttributeDetails { path, before, after, replaces } in attributes {
        let path = name(&path, sink)?;
        let (before, after) = (bounded(before, sink)?, bounded(after, sink)?);
        clean.push(AttributeDetails { path, before, after, replaces });
    }
    let omitted = omitted.saturating_add(u64::try_from(more).unwrap_or(u64::MAX));
    Some(ResourceDetails { address: name(&address, sink)?, action, attributes: clean, omitted })
}

/// Redacts before truncating, because a truncated secret would not be found.
fn name(text: &str, sink: &mut dyn Sink) -> Option<String> {
    Some(cut(sink.redacted(text)?, NAME_BYTES).0)
}

fn bounded(value: Option<DetailValue>, sink: &mut dyn Sink) -> Option<Option<DetailValue>> {
    let bounded = match value {
        Some(DetailValue::Value(value)) => {
            let value = redacted(value, sink)?;
            let text = match &value {
                Value::String(text) => text.clone(),
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::Array(_)
                | Value::Object(_) => value.to_string(),
            };
            let size_bytes = text.len() as u64;
            match cut(text, VALUE_BYTES) {
                (_, false) => DetailValue::Value(value),
                (text, true) => DetailValue::Truncated { text, size_bytes },
            }
        }
        Some(DetailValue::Truncated { text, size_bytes }) => {
            let (text, _) = cut(sink.redacted(&text)?, VALUE_BYTES);
            DetailValue::Truncated { text, size_bytes }
        }
        Some(value @ (DetailValue::KnownAfterApply | DetailValue::Sensitive)) => value,
        None => return Some(None),
    };
    Some(Some(bounded))
}

fn redacted(value: Value, sink: &mut dyn Sink) -> Option<Value> {
    Some(match value {
        Value::String(text) => Value::String(sink.redacted(&text)?),
        Value::Array(items) => {
            let items = items.into_iter().map(|item| redacted(item, sink));
            Value::Array(items.collect::<Option<_>>()?)
        }
        Value::Object(members) => {
            let members = members
                .into_iter()
                .map(|(name, member)| Some((sink.redacted(&name)?, redacted(member, sink)?)));
            Value::Object(members.collect::<Option<_>>()?)
        }
        // A number can be a secret, such as a PIN.
        Value::Number(number) => {
            let text = number.to_string();
            match sink.redacted(&text)? {
                clean if clean == text => Value::Number(number),
                clean => Value::String(clean),
            }
        }
        Value::Null | Value::Bool(_) => value,
    })
}

/// Shortens a text between two characters. Returns true if it was too long.
fn cut(mut text: String, limit: usize) -> (String, bool) {
    if text.len() <= limit {
        return (text, false);
    }
    text.truncate(text.floor_char_boundary(limit));
    (text, true)
}

#[cfg(test)]
mod tests;
