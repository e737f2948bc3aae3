//! Serial of a state as text. Every other byte stays: a number must not lose a digit.
use std::io;

use serde::Deserialize;
use serde_json::value::RawValue;

/// Returns the state with another serial.
pub(super) fn with_serial(state: &[u8], serial: u64) -> io::Result<Vec<u8>> {
    #[derive(Deserialize)]
    struct Top<'a> {
        #[serde(borrow)]
        serial: &'a RawValue,
    }
    let text = str::from_utf8(state).map_err(io::Error::other)?;
    let Top { serial: written } = serde_json::from_str(text)?;
    let written = written.get();
    // The value is a part of the text.
    let start = written.as_ptr() as usize - text.as_ptr() as usize;
    let (before, rest) = text.split_at(start);
    Ok(format!("{before}{serial}{}", &rest[written.len()..]).into_bytes())
}

/// Returns a state without resources that follows a state with this lineage and serial.
pub(super) fn without_resources(lineage: &str, serial: u64) -> io::Result<Vec<u8>> {
    // Each Terraform accepts a state of an earlier version.
    let state = serde_json::json!({
        "version": 4, "terraform_version": "1.0.0", "serial": serial, "lineage": lineage,
        "outputs": {}, "resources": [], "check_results": null,
    });
    Ok(serde_json::to_vec(&state)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{local::is_empty, mark_of};

    #[test]
    fn only_the_serial_of_the_state_changes() {
        let state = r#"{"version": 4, "outputs": {"serial": {"value": 7}}, "big": 123456789012345678901234567890.50,
            "serial":   7 , "lineage": "l \"serial\": 7"}"#;
        let changed = with_serial(state.as_bytes(), 12).unwrap();
        let expected = state.replace("\"serial\":   7 ,", "\"serial\":   12 ,");
        assert_eq!(String::from_utf8(changed).unwrap(), expected);
        for invalid in ["", "[]", r#"{"lineage":"l"}"#] {
            assert!(with_serial(invalid.as_bytes(), 1).is_err(), "{invalid}");
        }
    }

    #[test]
    fn a_state_without_resources_has_its_version() {
        let state = without_resources("l", 8).unwrap();
        let mark = mark_of(&state).unwrap();
        assert_eq!((mark.lineage.as_deref(), mark.serial), (Some("l"), 8));
        assert!(is_empty(&state));
    }
}
