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
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
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
        deserializer.deserialize_map(MembersVisitor)
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
pub(super) type ReplaceValue<'a> = &'a mut dyn FnMut(&str, &RawValue) -> Option<Box<RawValue>>;

/// Replaces values under an object or array by their JSON pointers (RFC 6901). `classify` returns the
/// relation of a pointer to the values to replace. A value that contains none of them is not
/// parsed. Returns `None` if nothing was replaced.
pub(super) fn replace_values(
    value: &RawValue,
    at: &str,
    classify: &dyn Fn(&str) -> Relation,
    instead: ReplaceValue<'_>,
) -> Result<Option<Box<RawValue>>, serde_json::Error> {
    match classify(at) {
        Relation::Outside => return Ok(None),
        Relation::Match => return Ok(instead(at, value)),
        Relation::Above => {}
    }
    if let Ok(mut items) = serde_json::from_str::<Vec<Box<RawValue>>>(value.get()) {
        let mut changed = false;
        for (index, value) in items.iter_mut().enumerate() {
            if let Some(new) =
                replace_values(value, &format!("{at}/{index}"), classify, &mut *instead)?
            {
                *value = new;
                changed = true;
            }
        }
        return changed.then(|| to_raw_value(&items)).transpose();
    }
    // A pointer may lead through a value that has no members and no items. Then it matches nothing.
    let Ok(mut members) = serde_json::from_str::<Members>(value.get()) else { return Ok(None) };
    let mut changed = false;
    for (name, value) in &mut members.0 {
        let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
        if let Some(new) = replace_values(value, &at, classify, &mut *instead)? {
            *value = new;
            changed = true;
        }
    }
    changed.then(|| to_raw_value(&members)).transpose()
}

/// Relation of a pointer to the values to replace.
pub(super) enum Relation {
    /// The value at the pointer is to be replaced.
    Match,
    /// The value at the pointer contains a value to replace.
    Above,
    /// The value at the pointer contains no value to replace.
    Outside,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_the_items_of_an_array_are_replaced() {
        let text = r#"{"checks":[{"check":"a","message":"x"},{"check":"b"}],"job":1}"#;
        let value: Box<RawValue> = serde_json::from_str(text).unwrap();
        let classify = |pointer: &str| match pointer {
            "/checks/0/message" => Relation::Match,
            "" | "/checks" | "/checks/0" => Relation::Above,
            _ => Relation::Outside,
        };
        let mut instead = |_: &str, _: &RawValue| to_raw_value("new").ok();
        let replaced = replace_values(&value, "", &classify, &mut instead).unwrap().unwrap();
        let expected = r#"{"checks":[{"check":"a","message":"new"},{"check":"b"}],"job":1}"#;
        assert_eq!(replaced.get(), expected);
    }
}
