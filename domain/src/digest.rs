//! SHA-256 digest as text.
use std::{fmt, str::FromStr};

use bincode::{
    Decode, Encode,
    de::Decoder,
    enc::Encoder,
    error::{DecodeError, EncodeError},
};
use serde::{Deserialize, Serialize};

/// SHA-256 digest: `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// Text that is not a valid digest.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("invalid digest {0:?}: expected `sha256:` and 64 lower-case hexadecimal digits")]
pub struct DigestError(String);

impl TryFrom<String> for Digest {
    type Error = DigestError;
    fn try_from(text: String) -> Result<Self, DigestError> {
        let valid = text.strip_prefix("sha256:").is_some_and(|hex| {
            hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        });
        if valid { Ok(Digest(text)) } else { Err(DigestError(text)) }
    }
}

impl Digest {
    /// Returns the 32 bytes of the digest.
    pub fn bytes(&self) -> [u8; 32] {
        let digits = self.0.bytes().skip("sha256:".len());
        // `try_from` has accepted only 0-9 and a-f.
        let values =
            digits.map(|digit| if digit > b'9' { digit - b'a' + 10 } else { digit - b'0' });
        let values: Vec<u8> = values.collect();
        std::array::from_fn(|index| values[2 * index] << 4 | values[2 * index + 1])
    }
}

impl From<[u8; 32]> for Digest {
    fn from(bytes: [u8; 32]) -> Digest {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Digest(format!("sha256:{digits}"))
    }
}

/// Encodes the 32 bytes. Decoding needs no check, because every 32 bytes form a valid digest.
impl Encode for Digest {
    fn encode<E: Encoder>(&self, to: &mut E) -> Result<(), EncodeError> {
        self.bytes().encode(to)
    }
}

impl<C> Decode<C> for Digest {
    fn decode<D: Decoder<Context = C>>(from: &mut D) -> Result<Digest, DecodeError> {
        Ok(<[u8; 32]>::decode(from)?.into())
    }
}

bincode::impl_borrow_decode!(Digest);

impl FromStr for Digest {
    type Err = DigestError;
    fn from_str(text: &str) -> Result<Self, DigestError> {
        text.to_string().try_into()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lower_case_sha256_is_a_digest() {
        let text = format!("sha256:{:064x}", 0xabc);
        assert_eq!(text.parse::<Digest>().unwrap().to_string(), text);
        let bytes = text.parse::<Digest>().unwrap().bytes();
        assert_eq!((bytes[29], bytes[30], bytes[31]), (0, 0x0a, 0xbc));
        let others = [&text[7..], &text[..70], &text.to_uppercase(), &text.replace('0', "g"), ""];
        for other in others {
            assert!(other.parse::<Digest>().is_err(), "{other}");
            assert!(serde_json::from_str::<Digest>(&format!("{other:?}")).is_err(), "{other}");
        }
    }
}
