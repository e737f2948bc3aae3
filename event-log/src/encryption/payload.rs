//! Stored and readable form of a payload with personal data. In the stored form, each encrypted
//! field has the value [`PLACEHOLDER`]. The member `encrypted` at the end has the encrypted values.
//!
//! ```json
//! {"type":"created", … "inputs":{"region":"[encrypted]"},
//!  "encrypted":[{"subjects":["ins_…"],"paths":["/inputs/region"],"ciphertext":"<nonce, ciphertext, tag in base64>"}]}
//! ```
use std::collections::{BTreeMap, HashMap};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::erasure::{ERASED, FieldOwner, PersonalField};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use zeroize::Zeroizing;

use super::{
    KeyState, Keys,
    aead::{decrypt, encrypt},
    members::{Members, Relation, replace_values},
};

/// Stored value of an encrypted field.
pub(super) const PLACEHOLDER: &str = "[encrypted]";
const MEMBER: &str = "encrypted";

/// Encrypted fields of one set of subjects. Decryption needs the keys of all these subjects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EncryptedFields {
    /// Subjects whose keys together decrypt the fields.
    pub subjects: Vec<String>,
    /// JSON pointers to the encrypted values.
    paths: Vec<String>,
    /// JSON array of the values in the order of `paths`, encrypted: nonce, ciphertext and tag in
    /// base64.
    ciphertext: String,
}

/// Identity of an event. An encrypted field cannot be decrypted in another event.
#[derive(Debug, Clone, Copy)]
pub struct EventContext<'a> {
    /// Type of the event's aggregate, for example `install`.
    pub aggregate_type: &'a str,
    /// Id of the event's aggregate.
    pub aggregate_id: &'a str,
    /// Sequence of the event in its stream.
    pub sequence: u64,
    /// Type of the event, in the form `aggregate.verb_past`.
    pub event_type: &'a str,
}

impl EventContext<'_> {
    fn context(&self, subjects: &[String], paths: &[String]) -> Vec<u8> {
        let EventContext { aggregate_type, aggregate_id, sequence, event_type } = self;
        let stream = format!("{aggregate_type}/{aggregate_id} {sequence} {event_type}");
        format!("stead/encrypted/v1\n{stream}\n{}\n{}", subjects.join(" "), paths.join(" "))
            .into_bytes()
    }
}

/// Returns the subjects of an event's personal data: its customer and its author.
pub(super) fn subjects(
    payload: &str,
    fields: &[PersonalField],
    customer: Option<String>,
) -> (Option<String>, Option<String>) {
    #[derive(Deserialize)]
    struct Written {
        by: Option<String>,
    }
    let by = fields.iter().any(|field| field.owner == FieldOwner::Author);
    let written = by.then(|| serde_json::from_str::<Written>(payload).ok()).flatten();
    let author = written.and_then(|written| written.by).filter(|by| by.starts_with("prn_"));
    (customer, author)
}

/// Pointers of fields, with their values.
type Parts = (Vec<String>, Vec<Box<RawValue>>);

/// Returns the encrypted payload and the payload to read, or `None` if no field has personal data.
pub(super) fn encrypt_payload(
    payload: &str,
    fields: &[PersonalField],
    (customer, author): (Option<String>, Option<String>),
    which: EventContext<'_>,
    keys: &Keys,
) -> Result<Option<(String, String)>, String> {
    let bad = |error: serde_json::Error| error.to_string();
    let whose = |field: &PersonalField| -> Vec<String> {
        match field.owner {
            FieldOwner::Customer => customer.iter().cloned().collect(),
            FieldOwner::Author => customer.iter().chain(&author).cloned().collect(),
        }
    };
    let original: Box<RawValue> = serde_json::from_str(payload).map_err(bad)?;
    let placeholder = to_raw_value(PLACEHOLDER).map_err(bad)?;
    let erased = to_raw_value(ERASED).map_err(bad)?;
    let (mut stored, mut readable) = (original.clone(), original);
    let mut parts: BTreeMap<Vec<String>, Parts> = BTreeMap::new();
    for field in fields {
        let of = whose(field);
        if of.is_empty() {
            continue;
        }
        let classify = |pointer: &str| relation(pointer, field.path);
        match keys.combined_state(&of) {
            KeyState::Open(_) => {
                let (at, values) = parts.entry(of).or_default();
                let mut take = |pointer: &str, value: &RawValue| {
                    at.push(pointer.to_owned());
                    values.push(value.to_owned());
                    Some(placeholder.clone())
                };
                stored = replace_values(&stored, "", &classify, &mut take)
                    .map_err(bad)?
                    .unwrap_or(stored);
            }
            // New data of a shredded subject is stored as erased.
            KeyState::Shredded => {
                let mut erase = |_: &str, _: &RawValue| Some(erased.clone());
                stored = replace_values(&stored, "", &classify, &mut erase)
                    .map_err(bad)?
                    .unwrap_or(stored);
                readable = replace_values(&readable, "", &classify, &mut erase)
                    .map_err(bad)?
                    .unwrap_or(readable);
            }
            // Without the key, the commit fails. The data must not be written in plaintext.
            KeyState::Missing(why) => return Err(why),
        }
    }
    let mut encrypted = vec![];
    for (of, (at, values)) in parts {
        let KeyState::Open(key) = keys.combined_state(&of) else { continue };
        if at.is_empty() {
            continue;
        }
        let plain = Zeroizing::new(serde_json::to_vec(&values).map_err(bad)?);
        let context = which.context(&of, &at);
        let text = encrypt(&key, &context, &plain).map(|text| STANDARD.encode(text));
        let text = text.ok_or("the personal data of the event is too long")?;
        encrypted.push(EncryptedFields { subjects: of, paths: at, ciphertext: text });
    }
    if stored.get() == payload {
        return Ok(None);
    }
    if encrypted.is_empty() {
        return Ok(Some((stored.get().to_owned(), readable.get().to_owned())));
    }
    let mut members: Members = serde_json::from_str(stored.get()).map_err(bad)?;
    members.0.push((MEMBER.to_owned(), to_raw_value(&encrypted).map_err(bad)?));
    let stored = serde_json::to_string(&members).map_err(bad)?;
    Ok(Some((stored, readable.get().to_owned())))
}

/// Returns the encrypted fields of a payload. Empty if the payload is stored in plaintext.
///
/// # Errors
/// If the payload has a member `encrypted` that cannot be read. Such a payload is never treated as
/// plaintext.
pub(super) fn encrypted_fields(payload: &str) -> Result<Vec<EncryptedFields>, String> {
    #[derive(Deserialize)]
    struct Encrypted<'p> {
        #[serde(default, borrow)]
        encrypted: Option<&'p RawValue>,
    }
    // The usual case, which needs no parsing.
    if !payload.contains("\"encrypted\"") {
        return Ok(vec![]);
    }
    let bad = |error: serde_json::Error| {
        format!("the member `encrypted` of its payload cannot be read: {error}")
    };
    let Some(encrypted) = serde_json::from_str::<Encrypted<'_>>(payload).map_err(bad)?.encrypted
    else {
        return Ok(vec![]);
    };
    let fields: Vec<EncryptedFields> = serde_json::from_str(encrypted.get()).map_err(bad)?;
    if fields.is_empty() {
        return Err("the member `encrypted` of its payload is empty".into());
    }
    Ok(fields)
}

/// Returns the payload with decrypted fields, `None` if no field is encrypted, or the reason why
/// decryption failed.
pub(super) fn open(
    payload: &str,
    which: EventContext<'_>,
    keys: &Keys,
) -> Result<Option<String>, String> {
    let fields = encrypted_fields(payload)?;
    if fields.is_empty() {
        return Ok(None);
    }
    let bad = |error: serde_json::Error| error.to_string();
    let erased = to_raw_value(ERASED).map_err(bad)?;
    let mut values: HashMap<String, Box<RawValue>> = HashMap::new();
    for EncryptedFields { subjects: of, paths: at, ciphertext: text } in fields {
        let key = match keys.combined_state(&of) {
            KeyState::Open(key) => key,
            KeyState::Shredded => {
                values.extend(at.into_iter().map(|at| (at, erased.clone())));
                continue;
            }
            KeyState::Missing(why) => return Err(why),
        };
        let encrypted = STANDARD.decode(&text).ok();
        let plain = encrypted.and_then(|text| decrypt(&key, &which.context(&of, &at), &text));
        let changed = || {
            format!("the encrypted data of {} was changed, or is from another event", of.join(", "))
        };
        let plain = plain.ok_or_else(changed)?;
        let plaintexts: Vec<Box<RawValue>> = serde_json::from_slice(&plain).map_err(bad)?;
        values.extend(at.into_iter().zip(plaintexts));
    }
    let mut members: Members = serde_json::from_str(payload).map_err(bad)?;
    members.0.retain(|(name, _)| name != MEMBER);
    let without_placeholders = to_raw_value(&members).map_err(bad)?;
    let pointers: Vec<String> = values.keys().cloned().collect();
    let classify = |pointer: &str| {
        let within =
            |path: &String| path.strip_prefix(pointer).is_some_and(|rest| rest.starts_with('/'));
        match pointers.iter().any(|path| path == pointer) {
            true => Relation::Match,
            false if pointers.iter().any(within) => Relation::Above,
            false => Relation::Outside,
        }
    };
    let mut fill = |pointer: &str, _: &RawValue| values.remove(pointer);
    let read = replace_values(&without_placeholders, "", &classify, &mut fill).map_err(bad)?;
    Ok(Some(read.unwrap_or(without_placeholders).get().to_owned()))
}

/// Relation of a pointer to the path of a personal data field.
fn relation(pointer: &str, path: &[&str]) -> Relation {
    let mut steps = pointer.split('/').skip(1);
    for part in path {
        match steps.next() {
            None => return Relation::Above,
            Some(step) if *part == "*" || step == *part => {}
            Some(_) => return Relation::Outside,
        }
    }
    if steps.next().is_some() { Relation::Outside } else { Relation::Match }
}

#[cfg(test)]
mod tests;
