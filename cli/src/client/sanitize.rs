//! Sanitizes responses for a terminal.
pub use schemas::sanitize::sanitize;
use serde_json::Value;

/// Returns the response with every string sanitized. `None` if the response is not JSON.
pub(super) fn sanitize_bytes(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut value: Value = serde_json::from_slice(bytes).ok()?;
    sanitize_json(&mut value);
    serde_json::to_vec(&value).ok()
}

pub(super) fn sanitize_json(value: &mut Value) {
    match value {
        Value::String(text) => *text = sanitize(text),
        Value::Array(items) => items.iter_mut().for_each(sanitize_json),
        Value::Object(members) => {
            let entries = std::mem::take(members).into_iter();
            members.extend(entries.map(|(name, mut value)| {
                sanitize_json(&mut value);
                (sanitize(&name), value)
            }));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_text_of_a_response_is_sanitized() {
        let unsafe_text = "x\u{1b}[1A";
        let response =
            json!({unsafe_text: [unsafe_text, {"deep": unsafe_text}], "n": 7, "none": null})
                .to_string();
        let sanitized = sanitize_bytes(response.as_bytes()).unwrap();
        let text = String::from_utf8(sanitized).unwrap();
        assert!(!text.contains("u001b") && text.matches('\u{fffd}').count() == 3, "{text}");
        assert_eq!(sanitize_bytes(b"no JSON"), None);
    }
}
