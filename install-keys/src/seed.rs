//! Seed of an install.
use std::fmt;

use rand_core::CryptoRng;
use zeroize::Zeroizing;

/// Secret of an install, from which all its keys are derived. It is overwritten when it is dropped
/// and never printed.
#[derive(Clone)]
pub struct Seed(Zeroizing<[u8; 32]>);

impl Seed {
    /// Creates a random seed.
    pub fn generate(rng: &mut impl CryptoRng) -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        rng.fill_bytes(bytes.as_mut());
        Seed(bytes)
    }

    /// Restores a seed that was stored.
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        Seed(Zeroizing::new(*bytes))
    }

    /// Returns the secret bytes, to store them.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(…)")
    }
}
