use std::sync::Arc;

use domain::erasure::personal_fields;

use super::*;
use crate::encryption::{Key, aead::Secret};

const WHICH: EventContext<'static> = EventContext {
    aggregate_type: "install",
    aggregate_id: "ins_1",
    sequence: 2,
    event_type: "install.inputs_changed",
};
const PAYLOAD: &str = r#"{"type":"inputs_changed","set":{"b/~":"Ada","a":"x"},"unset":["c"],"by":"prn_1","reason":"Bo said \"go\""}"#;

fn keys(known: &[(&str, Option<u8>)]) -> Keys {
    let key = |byte: &u8| Key::Open(Arc::new(Secret::new([*byte; 32])));
    let known = known
        .iter()
        .map(|(of, key_of)| ((*of).to_string(), key_of.as_ref().map_or(Key::Shredded, key)));
    Keys(known.collect())
}

fn encrypted(keys: &Keys) -> Option<(String, String)> {
    let of = subjects(PAYLOAD, personal_fields(WHICH.event_type), Some("ins_1".into()));
    assert_eq!(of, (Some("ins_1".into()), Some("prn_1".into())));
    encrypt_payload(PAYLOAD, personal_fields(WHICH.event_type), of, WHICH, keys).unwrap()
}

#[test]
fn encrypted_payload_is_decrypted_byte_for_byte() {
    let both = keys(&[("ins_1", Some(1)), ("prn_1", Some(2))]);
    let (stored, readable) = encrypted(&both).unwrap();
    assert_eq!(readable, PAYLOAD);
    for text in ["Ada", "Bo said", "\"x\""] {
        assert!(!stored.contains(text), "{stored}");
    }
    let expected = r#"{"type":"inputs_changed","set":{"b/~":"[encrypted]","a":"[encrypted]"},"unset":["c"],"by":"prn_1","reason":"[encrypted]","encrypted":[{"subjects":["ins_1"],"paths":["/set/b~1~0","/set/a"],"ciphertext":""#;
    assert!(stored.starts_with(expected), "{stored}");
    assert_eq!(open(&stored, WHICH, &both), Ok(Some(PAYLOAD.into())));
}

#[test]
fn data_of_two_subjects_is_erased_with_either_key() {
    let (stored, _) = encrypted(&keys(&[("ins_1", Some(1)), ("prn_1", Some(2))])).unwrap();
    let read = |keys: &Keys| open(&stored, WHICH, keys).unwrap().unwrap();
    let readable = read(&keys(&[("ins_1", Some(1)), ("prn_1", None)]));
    assert_eq!(readable, PAYLOAD.replace(r#"Bo said \"go\""#, ERASED));
    let readable = read(&keys(&[("ins_1", None), ("prn_1", Some(2))]));
    let none = r#""set":{"b/~":"[erased]","a":"[erased]"},"unset":["c"],"by":"prn_1","reason":"[erased]"}"#;
    assert!(readable.ends_with(none), "{readable}");
}

#[test]
fn nothing_is_encrypted_with_a_shredded_key() {
    let (stored, readable) = encrypted(&keys(&[("ins_1", None), ("prn_1", Some(2))])).unwrap();
    assert_eq!(stored, readable);
    assert!(!stored.contains("Ada") && !stored.contains("encrypted"), "{stored}");
}

#[test]
fn moved_changed_or_keyless_payload_is_an_error() {
    let both = keys(&[("ins_1", Some(1)), ("prn_1", Some(2))]);
    let (stored, _) = encrypted(&both).unwrap();
    let elsewhere = EventContext { sequence: 3, ..WHICH };
    assert!(open(&stored, elsewhere, &both).is_err());
    assert!(open(&stored, WHICH, &keys(&[("ins_1", Some(3)), ("prn_1", Some(2))])).is_err());
    assert!(open(&stored, WHICH, &keys(&[("ins_1", Some(1))])).is_err());
    let swapped = stored.replace(r#"["/set/b~1~0","/set/a"]"#, r#"["/set/a","/set/b~1~0"]"#);
    assert!(open(&swapped, WHICH, &both).is_err());
}

#[test]
fn payload_without_encryption_is_read_unchanged() {
    let none = keys(&[]);
    assert_eq!(open(PAYLOAD, WHICH, &none), Ok(None));
    // A value that a user supplies and that has the form of an encrypted field.
    let alike = r#"{"type":"x","outputs":{"a":{"encrypted":[{"subjects":["ins_1"],"paths":["/b"],"ciphertext":""}]}}}"#;
    assert_eq!(open(alike, WHICH, &none), Ok(None));
}

mod pentest {
    use super::*;

    #[test]
    fn invalid_encrypted_member_is_an_error() {
        let both = keys(&[("ins_1", Some(1)), ("prn_1", Some(2))]);
        let (stored, _) = encrypted(&both).unwrap();
        let broken = [
            stored.replace("\"subjects\":", "\"whose\":"),
            stored
                .replace("\"encrypted\":[{", "\"encrypted\": [ {")
                .replace("\"paths\":", "\"where\":"),
            stored.replace("\"encrypted\":[", "\"encrypted\":[7,"),
            PAYLOAD.replacen('{', "{\"encrypted\":[],", 1),
            PAYLOAD.replacen('{', "{\"encrypted\":\"x\",", 1),
            stored.replacen('{', "{\"encrypted\":[],", 1),
        ];
        for payload in broken {
            assert!(open(&payload, WHICH, &both).is_err(), "{payload}");
            assert!(crate::encryption::is_encrypted(&payload), "{payload}");
        }
        // Spaces make no difference. A nested member `encrypted`, which a customer may choose, is
        // not an encrypted field.
        let spaced = stored.replace("\"encrypted\":[{", "\"encrypted\" : [ {");
        assert_eq!(open(&spaced, WHICH, &both), Ok(Some(PAYLOAD.into())));
        let nested = r#"{"type":"x","outputs":{"encrypted":[{"subjects":7}]}}"#;
        assert_eq!(open(nested, WHICH, &both), Ok(None));
    }
}
