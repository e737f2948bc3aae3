//! Named output values that a plugin, a script or the customer's stack reported.
use std::{
    collections::{BTreeMap, btree_map},
    ops::{Deref, DerefMut},
};

use bincode::{
    Decode, Encode,
    de::Decoder,
    enc::Encoder,
    error::{DecodeError, EncodeError},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

/// Maximum nesting depth of a value, equal to the limit of `serde_json`.
const MAX_DEPTH: usize = 128;

/// Output values by name. The type has its own snapshot encoding: JSON values can be decoded only
/// from self-describing formats, and bincode is not self-describing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Outputs(BTreeMap<String, Value>);

impl Outputs {
    pub fn new() -> Outputs {
        Outputs::default()
    }
}

impl Deref for Outputs {
    type Target = BTreeMap<String, Value>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Outputs {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl From<BTreeMap<String, Value>> for Outputs {
    fn from(values: BTreeMap<String, Value>) -> Outputs {
        Outputs(values)
    }
}

impl From<Outputs> for BTreeMap<String, Value> {
    fn from(outputs: Outputs) -> Self {
        outputs.0
    }
}

impl<const N: usize> From<[(String, Value); N]> for Outputs {
    fn from(values: [(String, Value); N]) -> Outputs {
        Outputs(values.into())
    }
}

impl FromIterator<(String, Value)> for Outputs {
    fn from_iter<T: IntoIterator<Item = (String, Value)>>(values: T) -> Outputs {
        Outputs(values.into_iter().collect())
    }
}

impl IntoIterator for Outputs {
    type Item = (String, Value);
    type IntoIter = btree_map::IntoIter<String, Value>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'o> IntoIterator for &'o Outputs {
    type Item = (&'o String, &'o Value);
    type IntoIter = btree_map::Iter<'o, String, Value>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl Encode for Outputs {
    fn encode<E: Encoder>(&self, to: &mut E) -> Result<(), EncodeError> {
        self.0.len().encode(to)?;
        self.0.iter().try_for_each(|(name, value)| {
            name.encode(to)?;
            encode(value, to)
        })
    }
}

impl<C> Decode<C> for Outputs {
    fn decode<D: Decoder<Context = C>>(from: &mut D) -> Result<Outputs, DecodeError> {
        let length = usize::decode(from)?;
        from.claim_container_read::<Member>(length)?;
        (0..length).map(|_| member(from, 0)).collect()
    }
}

bincode::impl_borrow_decode!(Outputs);

/// Encodes a tag for the type of the value, then the value.
fn encode<E: Encoder>(value: &Value, to: &mut E) -> Result<(), EncodeError> {
    match value {
        Value::Null => 0u8.encode(to),
        Value::Bool(value) => (1u8, value).encode(to),
        Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(number), _, _) => (2u8, number).encode(to),
            (None, Some(number), _) => (3u8, number).encode(to),
            (None, None, Some(number)) => (4u8, number).encode(to),
            (None, None, None) => Err(EncodeError::Other("number has no supported type")),
        },
        Value::String(text) => (5u8, text).encode(to),
        Value::Array(values) => {
            (6u8, values.len()).encode(to)?;
            values.iter().try_for_each(|value| encode(value, to))
        }
        Value::Object(members) => {
            (7u8, members.len()).encode(to)?;
            members.iter().try_for_each(|(name, value)| {
                name.encode(to)?;
                encode(value, to)
            })
        }
    }
}

type Member = (String, Value);

/// Decodes one member. The decoder limits the total number of claimed bytes, and the caller has
/// claimed the bytes of all members. Releases the share of this member first, because decoding its
/// parts claims the bytes again.
fn member<D: Decoder>(from: &mut D, depth: usize) -> Result<Member, DecodeError> {
    from.unclaim_bytes_read(size_of::<Member>());
    Ok((String::decode(from)?, decode(from, depth)?))
}

fn decode<D: Decoder>(from: &mut D, depth: usize) -> Result<Value, DecodeError> {
    if depth > MAX_DEPTH {
        return Err(DecodeError::Other("value is nested too deeply"));
    }
    Ok(match u8::decode(from)? {
        0 => Value::Null,
        1 => Value::Bool(Decode::decode(from)?),
        2 => Value::Number(u64::decode(from)?.into()),
        3 => Value::Number(i64::decode(from)?.into()),
        4 => {
            let number = Number::from_f64(f64::decode(from)?);
            Value::Number(number.ok_or(DecodeError::Other("number is not valid in JSON"))?)
        }
        5 => Value::String(Decode::decode(from)?),
        6 => {
            let length = usize::decode(from)?;
            from.claim_container_read::<Value>(length)?;
            let values = (0..length).map(|_| {
                from.unclaim_bytes_read(size_of::<Value>());
                decode(from, depth + 1)
            });
            Value::Array(values.collect::<Result<_, _>>()?)
        }
        7 => {
            let length = usize::decode(from)?;
            from.claim_container_read::<Member>(length)?;
            let members = (0..length).map(|_| member(from, depth + 1));
            Value::Object(members.collect::<Result<Map<_, _>, _>>()?)
        }
        _ => return Err(DecodeError::Other("value has an unknown type")),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    type Decoded = Result<(Outputs, usize), DecodeError>;

    fn decode_all(bytes: &[u8]) -> Decoded {
        bincode::decode_from_slice(bytes, bincode::config::standard().with_limit::<4_096>())
    }

    #[test]
    fn values_are_decoded_exactly() {
        let value = json!({
            "none": null, "yes": true, "small": -7, "big": u64::MAX, "low": i64::MIN, "zero": 0,
            "whole": 1.0, "minus": -0.0, "third": 0.1 + 0.2, "text": "a\u{0}b\n", "": [[], {}, [1, "x"]],
        });
        let outputs: Outputs = serde_json::from_value(value).unwrap();
        let bytes = bincode::encode_to_vec(&outputs, bincode::config::standard()).unwrap();
        let (decoded, length) = decode_all(&bytes).unwrap();
        assert_eq!((length, decoded.len()), (bytes.len(), outputs.len()));
        // Compare as text, because 0.0 equals -0.0.
        assert_eq!(
            serde_json::to_string(&decoded).unwrap(),
            serde_json::to_string(&outputs).unwrap()
        );
        for cut in 0..bytes.len() {
            assert!(decode_all(&bytes[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn invalid_bytes_are_rejected_without_a_panic() {
        // One output whose value has 1,000 nested lists.
        let mut deep = vec![1, 1, b'a'];
        deep.extend([6, 1].repeat(1_000));
        assert!(decode_all(&deep).unwrap_err().to_string().contains("too deep"));
        assert!(decode_all(&[1, 1, b'a', 8]).is_err());
        let mut infinite = vec![1, 1, b'a', 4];
        infinite.extend(f64::INFINITY.to_le_bytes());
        assert!(decode_all(&infinite).is_err());
        // A length that exceeds the input.
        for kind in [5, 6, 7] {
            let mut long = vec![1, 1, b'a', kind, 253];
            long.extend(u64::MAX.to_le_bytes());
            assert!(decode_all(&long).is_err(), "{kind}");
        }
    }
}
