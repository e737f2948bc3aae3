//! The members of a JSON object in their order, each as it is written: what is not replaced stays byte for byte.
use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
    ser::SerializeMap as _,
};
use serde_json::value::{RawValue, to_raw_value};

/// The members of an object.
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

/// What is done at a place: what is written there instead, if anything.
pub(super) type Instead<'a> = &'a mut dyn FnMut(&str, &RawValue) -> Option<Box<RawValue>>;

/// Ask of every value under an object what is written instead, by its JSON pointer (RFC 6901). `wanted` says which
/// ways are worth going; what no way leads to is not taken apart. `None`: nothing is.
pub(super) fn replaced(
    value: &RawValue,
    at: &str,
    wanted: &dyn Fn(&str) -> Way,
    instead: Instead<'_>,
) -> Result<Option<Box<RawValue>>, serde_json::Error> {
    match wanted(at) {
        Way::Past => return Ok(None),
        Way::Here => return Ok(instead(at, value)),
        Way::Through => {}
    }
    // A place may lead into what is no object: then nothing is there.
    let Ok(mut members) = serde_json::from_str::<Members>(value.get()) else { return Ok(None) };
    let mut changed = false;
    for (name, value) in &mut members.0 {
        let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
        if let Some(new) = replaced(value, &at, wanted, &mut *instead)? {
            *value = new;
            changed = true;
        }
    }
    changed.then(|| to_raw_value(&members)).transpose()
}

/// Where a pointer leads.
pub(super) enum Way {
    /// To a place.
    Here,
    /// Towards one.
    Through,
    /// Nowhere.
    Past,
}
