//! Keys of an install, and the encryption of the data that only its runner and jobs can read.
//!
//! The first runner of an install creates a random [`Seed`]. HKDF-SHA256 derives every key from it:
//!
//! - an X25519 key that receives data (HPKE, RFC 9180, base mode)
//! - an Ed25519 key that signs what the runner writes
//! - keys for digests that reveal nothing to a party without the key
//!
//! Each key belongs to a *generation*, a number that the recovery of an install on another host
//! advances. A holder of the seed derives the keys of every generation, also of later ones: a
//! generation identifies the current host, and does not protect data from a former one.
//!
//! [`InstallKeys`] stay with the runner. A job gets [`ComponentKeys`]: keys of one component, which
//! decrypt nothing of another component. This separates honest jobs. A job that runs as the user of
//! the agent can read the seed.
//!
//! Ciphertext is bound to its purpose by associated data ([`ComponentData`], [`Value`]). The reader
//! builds them from what it expects, so ciphertext that a server moves or swaps is an error. An
//! earlier version is an error if the reader knows the expected serial and fence. The format is described in [`format`](mod@format).
//!
//! This crate has no I/O and no clock. The caller passes the source of randomness, usually
//! [`OsRng`].
mod context;
mod decrypt;
mod derive;
mod digest;
mod encrypt;
mod error;
pub mod format;
mod keys;
mod public;
mod recovery;
mod seed;

pub use rand_core::CryptoRng;

pub use self::{
    context::{ComponentData, Consumer, Fence, Of, Plan, Rescue, State, Value, Writer},
    decrypt::Decryptor,
    digest::{DigestUse, KeyedDigest, KeyedDigestError},
    encrypt::Encryptor,
    error::Error,
    keys::{ComponentKeys, InstallKeys},
    public::{Fingerprint, FingerprintError, PublicKeys},
    recovery::{Recipient, Recovered, RecoveryError, RecoveryIdentity, WrappedSeed},
    seed::Seed,
};

/// Randomness of the operating system. It panics if the system has none.
pub type OsRng = rand_core::UnwrapErr<getrandom::SysRng>;

/// Returns the randomness of the operating system.
pub fn os_rng() -> OsRng {
    rand_core::UnwrapErr(getrandom::SysRng)
}
