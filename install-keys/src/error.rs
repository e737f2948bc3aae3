//! Errors of encryption and decryption.

/// Reason why data cannot be encrypted or decrypted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes do not start like data of this crate, or have a later version.
    #[error("the data is not in a known format; update the runner if a newer version wrote it")]
    UnsupportedFormat,
    /// Keys of a later generation encrypted the data.
    #[error(
        "the data is encrypted to generation {found} of the install's keys, but this host has generation {own}; \
         another host has recovered the install"
    )]
    WrongGeneration {
        /// Generation in the header.
        found: u32,
        /// Generation of the reader's keys.
        own: u32,
    },
    /// The data is encrypted to another key of the same generation.
    #[error("the data is encrypted to another key; it belongs to another install or component")]
    WrongKey,
    /// The associated data differ: the data belongs to another place, version or purpose.
    #[error(
        "the data is not the expected one: it was moved, replaced, or belongs to another version"
    )]
    Moved,
    /// The install did not sign the data.
    #[error("the data is not signed by this install")]
    BadSignature,
    /// The data ends before its last chunk.
    #[error("the data is truncated: its end is missing")]
    Truncated,
    /// A chunk does not decrypt: it was changed, moved, or cut in its middle.
    #[error("the data was changed or cut after its encryption")]
    Changed,
    /// These keys belong to another component than the data.
    #[error("the keys belong to component {own:?}, but the data to {other:?}")]
    OtherComponent {
        /// Component of the keys.
        own: String,
        /// Component of the data.
        other: String,
    },
    /// The public key of the recipient is not a valid point.
    #[error("the public encryption key is not a valid X25519 key")]
    InvalidKey,
    /// The data has more than 2^32 chunks.
    #[error("the data is too large to encrypt")]
    TooLarge,
}
