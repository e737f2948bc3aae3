//! Result of `build`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::FileRef;

/// Result of `build`. A plugin of version 1 returns any value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Built {
    /// Image that the runner pushes instead of the source. From version 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<BuiltImage>,
}

/// OCI image whose contents are files in the work directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuiltImage {
    /// Config of the image.
    pub config: BuiltBlob,
    /// Layers of the image: exactly one.
    pub layers: Vec<BuiltBlob>,
}

/// File that becomes a blob of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuiltBlob {
    /// Media type of the content.
    pub media_type: String,
    /// File with the content.
    #[serde(flatten)]
    pub file: FileRef,
}

impl BuiltBlob {
    /// Returns the reference of a file with this content.
    pub fn of(media_type: &str, path: PathBuf, content: &[u8]) -> Self {
        BuiltBlob { media_type: media_type.to_owned(), file: FileRef::of(path, content) }
    }
}
