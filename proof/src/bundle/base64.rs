//! Bytes in JSON: standard base64 with padding, with exactly one encoding of the same bytes.
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// Bytes, encoded as base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Base64<T>(pub T);

impl<T: AsRef<[u8]>> Serialize for Base64<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de, T: TryFrom<Vec<u8>>> Deserialize<'de> for Base64<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Base64<T>, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let bytes = STANDARD.decode(&*text).map_err(D::Error::custom)?;
        let length = bytes.len();
        let read = T::try_from(bytes);
        read.map(Base64)
            .map_err(|_| D::Error::custom(format!("unexpected length of {length} bytes")))
    }
}
