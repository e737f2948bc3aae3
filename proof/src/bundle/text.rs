//! The bytes of a bundle: written piece by piece, because the whole may be long, and read strictly.
use std::io::{self, Write};

use serde::Serialize;

use super::{Base64, Bundle, BundleError, Event, FORMAT, MAX_BYTES};
use crate::Hash;

impl Bundle {
    /// Read a bundle. Nothing of it is believed yet.
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
        spelled(bytes.strip_suffix(b"\n").unwrap_or(bytes), &bundle)?;
        Ok(bundle)
    }
}

/// That these bytes are the one JSON of the value: whitespace, escapes and the order of keys say nothing, so they
/// must not be free to change.
///
/// # Errors
/// [`BundleError::Spelling`].
pub fn spelled<T: Serialize>(bytes: &[u8], value: &T) -> Result<(), BundleError> {
    let mut same = Same { left: bytes };
    let written = serde_json::to_writer(&mut same, value);
    let rest = same.left.len();
    if written.is_ok() && rest == 0 {
        Ok(())
    } else {
        Err(BundleError::Spelling { at: bytes.len() - rest })
    }
}

/// What is written has to be what is there already.
struct Same<'a> {
    left: &'a [u8],
}

impl Write for Same<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.left.strip_prefix(bytes) {
            Some(rest) => {
                self.left = rest;
                Ok(bytes.len())
            }
            None => Err(io::Error::other("other bytes")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes the pieces of a bundle as they come. What it gives, put together, is the JSON of the [`Bundle`].
#[derive(Debug, Default)]
pub struct Text {
    begun: bool,
    others: bool,
}

impl Text {
    /// Everything before the events. Of the bundle its events and others are not looked at.
    ///
    /// # Errors
    /// None in practice: it is plain data.
    pub fn head(&mut self, bundle: &Bundle) -> Result<String, serde_json::Error> {
        let empty = Bundle { events: Vec::new(), others: None, ..bundle.clone() };
        let text = serde_json::to_string(&empty)?;
        Ok(text.strip_suffix("]}").unwrap_or(&text).to_owned())
    }

    /// The next event.
    ///
    /// # Errors
    /// None in practice.
    pub fn event(&mut self, event: &Event) -> Result<String, serde_json::Error> {
        Ok(self.comma() + &serde_json::to_string(event)?)
    }

    /// What is after the events: the rest of the log from a position on.
    ///
    /// # Errors
    /// None in practice.
    pub fn others(
        &mut self,
        from: u64,
        edge: &[Base64<Hash>],
    ) -> Result<String, serde_json::Error> {
        *self = Text { begun: false, others: true };
        let edge = serde_json::to_string(edge)?;
        Ok(format!("],\"others\":{{\"from\":{from},\"edge\":{edge},\"entries\":["))
    }

    /// The next entry of the rest.
    ///
    /// # Errors
    /// None in practice.
    pub fn entry(&mut self, entry: Vec<u8>) -> Result<String, serde_json::Error> {
        Ok(self.comma() + &serde_json::to_string(&Base64(entry))?)
    }

    /// The end.
    pub fn end(self) -> &'static str {
        if self.others { "]}}\n" } else { "]}\n" }
    }

    fn comma(&mut self) -> String {
        if std::mem::replace(&mut self.begun, true) { ",".into() } else { String::new() }
    }
}
