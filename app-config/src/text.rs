//! A piece of text and where it was written, so that an error in it can name the place.
use serde::{Serialize, Serializer};

use crate::diagnostic::Place;

/// The place in the app directory where a text begins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Origin {
    /// Path from the top of the app directory, with `/`.
    pub file: String,
    /// The key that holds the text (`vars.region`); empty when the text is a whole file.
    pub key: String,
    /// Line of the text's first character, from 1.
    pub line: u32,
    /// Column of the text's first character, from 1, in characters.
    pub column: u32,
}

impl Origin {
    /// The beginning of a whole file.
    pub fn file(path: impl Into<String>) -> Self {
        Origin { file: path.into(), key: String::new(), line: 1, column: 1 }
    }

    /// The same for a finding, over so many characters.
    pub fn place(&self, length: usize) -> Place {
        Place { line: self.line, column: self.column, length: length as u32 }
    }
}

/// A text of the config that may hold templates. In JSON it is just its text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Text {
    pub value: String,
    pub origin: Origin,
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.value)
    }
}
