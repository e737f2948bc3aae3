use super::*;

fn raw<'a>(version: &'a str, payload: &'a str) -> RawEvent<'a> {
    RawEvent {
        position: 7,
        sequence: 3,
        at: Timestamp::UNIX_EPOCH,
        aggregate: "name",
        id: "install/acme",
        event_type: "name.taken",
        version,
        payload,
        metadata: r#"{"actor":"system"}"#,
    }
}

#[test]
fn an_unreadable_event_is_named_by_position_type_and_version() {
    for (version, payload, why) in [
        ("9", r#"{"type":"taken","owner":"ins_1"}"#, "reads only version 1 of name.taken"),
        ("1", r#"{"type":"taken"}"#, "missing field `owner`"),
    ] {
        let error = raw(version, payload).decode().unwrap_err().to_string();
        let named =
            format!("cannot decode the event at position 7: name.taken version {version}: ");
        assert!(error.starts_with(&named) && error.contains(why), "{error}");
    }
}
