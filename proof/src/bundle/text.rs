//! Encoding of a bundle: written in pieces because it can be long, and parsed strictly.
use std::io::{self, Write};

use serde::Serialize;

use super::{Base64, Bundle, BundleError, Event, FORMAT, MAX_BYTES};
use crate::Hash;

impl Bundle {
    /// Parses a bundle and checks its format and its encoding. Does not verify its proofs.
    ///
    /// # Errors
    /// [`BundleError`].
    pub fn read(bytes: &[u8]) -> Result<Bundle, BundleError> {
        if bytes.len() > MAX_BYTES {
            return Err(BundleError::TooLarge { limit: MAX_BYTES });
        }
        let unreadable = |error: serde_json::Error| BundleError::Unreadable(error.to_string());
        let bundle: Bundle = serde_json::from_slice(bytes).map_err(unreadable)?;
        if bundle.format != FORMAT {
            let other = format!("its format is {:?}, not {FORMAT:?}", bundle.format);
            return Err(BundleError::Unreadable(other));
        }
        check_canonical(bytes.strip_suffix(b"\n").unwrap_or(bytes), &bundle)?;
        Ok(bundle)
    }
}

/// Checks that the bytes are the canonical JSON of the value. Whitespace, escapes and key order
/// carry no meaning, so they must not vary.
///
/// # Errors
/// [`BundleError::NotCanonical`].
pub fn check_canonical<T: Serialize>(bytes: &[u8], value: &T) -> Result<(), BundleError> {
    let mut comparison = Comparison { rest: bytes };
    let written = serde_json::to_writer(&mut comparison, value);
    let rest = comparison.rest.len();
    if written.is_ok() && rest == 0 {
        Ok(())
    } else {
        Err(BundleError::NotCanonical { at: bytes.len() - rest })
    }
}

/// Writer that compares the output with existing bytes.
struct Comparison<'a> {
    rest: &'a [u8],
}

impl Write for Comparison<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.rest.strip_prefix(bytes) {
            Some(rest) => {
                self.rest = rest;
                Ok(bytes.len())
            }
            None => Err(io::Error::other("different bytes")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a bundle in pieces. Their concatenation is the JSON of the [`Bundle`].
#[derive(Debug, Default)]
pub struct BundleEncoder {
    begun: bool,
    others: bool,
}

impl BundleEncoder {
    /// Returns the encoding of everything before the events. Ignores the bundle's events and
    /// others.
    ///
    /// # Errors
    /// Never fails in practice.
    pub fn head(&mut self, bundle: &Bundle) -> Result<String, serde_json::Error> {
        let empty = Bundle { events: Vec::new(), others: None, ..bundle.clone() };
        let text = serde_json::to_string(&empty)?;
        Ok(text.strip_suffix("]}").unwrap_or(&text).to_owned())
    }

    /// Returns the encoding of the next event.
    ///
    /// # Errors
    /// Never fails in practice.
    pub fn event(&mut self, event: &Event) -> Result<String, serde_json::Error> {
        Ok(self.comma() + &serde_json::to_string(event)?)
    }

    /// Returns the text between the events and the other entries.
    ///
    /// # Errors
    /// Never fails in practice.
    pub fn others(
        &mut self,
        from: u64,
        edge: &[Base64<Hash>],
    ) -> Result<String, serde_json::Error> {
        *self = BundleEncoder { begun: false, others: true };
        let edge = serde_json::to_string(edge)?;
        Ok(format!("],\"others\":{{\"from\":{from},\"edge\":{edge},\"entries\":["))
    }

    /// Returns the encoding of the next other entry.
    ///
    /// # Errors
    /// Never fails in practice.
    pub fn entry(&mut self, entry: Vec<u8>) -> Result<String, serde_json::Error> {
        Ok(self.comma() + &serde_json::to_string(&Base64(entry))?)
    }

    /// Returns the text after the last event or entry.
    pub fn end(self) -> &'static str {
        if self.others { "]}}\n" } else { "]}\n" }
    }

    fn comma(&mut self) -> String {
        if std::mem::replace(&mut self.begun, true) { ",".into() } else { String::new() }
    }
}
