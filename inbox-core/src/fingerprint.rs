//! [`Fingerprint`]: a short hash of the payload, to notice one id used for two payloads.

use std::fmt;

use sha2::{Digest, Sha256};

/// The first 16 bytes of SHA-256 over the payload as it was received (rule R11).
///
/// Take it over the raw bytes, before decoding: a re-encoded payload has another fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; Self::LEN]);

impl Fingerprint {
    /// The length in bytes.
    pub const LEN: usize = 16;

    /// The fingerprint of a payload.
    ///
    /// ```
    /// # use inbox_core::Fingerprint;
    /// assert_eq!(Fingerprint::of(b"abc").to_string(), "ba7816bf8f01cfea414140de5dae2223");
    /// ```
    pub fn of(payload: &[u8]) -> Self {
        let digest = Sha256::digest(payload);
        let mut bytes = [0; Self::LEN];
        bytes.copy_from_slice(&digest[..Self::LEN]);
        Self(bytes)
    }

    /// A fingerprint as a store kept it.
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// The bytes, for a store to keep.
    pub const fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}
