//! Members of a JSON object in their order. A member that is not replaced keeps its exact bytes.
use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
    ser::SerializeMap as _,
};
use serde_json::value::{RawValue, to_raw_value};

pub(super) struct Members(pub Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = vec![];
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// Returns a replacement for the value at a pointer, if there is one.
pub(super) type Instead<'a> = &'a mut dyn FnMut(&str, &RawValue) -> Option<Box<RawValue>>;

/// Replaces values under an object by their JSON pointers (RFC 6901). `wanted` classifies each
/// pointer; a value that contains no match is not parsed. Returns `None` if nothing was replaced.
pub(super) fn replaced(
    value: &RawValue,
    at: &str,
    classify: &dyn Fn(&str) -> Way,
    instead: Instead<'_>,
) -> Result<Option<Box<RawValue>>, serde_json::Error> {
    match classify(at) {
        Way::Past => return Ok(None),
        Way::Here => return Ok(instead(at, value)),
        Way::Through => {}
    }
    // A pointer may lead through a value that is not an object. Then it matches nothing.
    let Ok(mut members) = serde_json::from_str::<Members>(value.get()) else { return Ok(None) };
    let mut changed = false;
    for (name, value) in &mut members.0 {
        let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
        if let Some(new) = replaced(value, &at, classify, &mut *instead)? {
            *value = new;
            changed = true;
        }
    }
    changed.then(|| to_raw_value(&members)).transpose()
}

/// Relation of a pointer to the values to replace.
pub(super) enum Way {
    /// The value at the pointer is to be replaced.
    Here,
    /// The value at the pointer contains a value to replace.
    Through,
    /// The value at the pointer contains no value to replace.
    Past,
}
