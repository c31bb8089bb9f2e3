//! Secrets that let a machine in, and what of them a server keeps.

use anabranch_net::endpoint::random_seed;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fmt::{self, Write as _};
use std::io;
use std::str::FromStr;

/// Bytes of an invitation: short enough for a line that somebody copies by hand.
const INVITATION_BYTES: usize = 16;

/// Digits by which people are shown a digest.
const SHORT: usize = 8;

/// Characters a secret may have. The shortest one holds 128 bits.
const LENGTHS: std::ops::RangeInclusive<usize> = 22..=86;

/// A random text, known to nobody else.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Secret(String);

/// A text that no secret of ours has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected 22 to 86 letters, digits, `-` and `_`")]
pub struct NoSecret;

impl Secret {
    /// A new credential, by which a server knows a client: 256 random bits.
    ///
    /// # Errors
    ///
    /// The system has no randomness.
    pub fn credential() -> io::Result<Self> {
        Ok(Self(URL_SAFE_NO_PAD.encode(random_seed()?)))
    }

    /// A new invitation, with which a client gets in for the first time: 128 random bits.
    ///
    /// # Errors
    ///
    /// The system has no randomness.
    pub fn invitation() -> io::Result<Self> {
        let seed = random_seed()?;
        Ok(Self(URL_SAFE_NO_PAD.encode(&seed[..INVITATION_BYTES])))
    }

    /// The text, to be shown to the server or, within a URL, to the person who is invited.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What a server keeps of it.
    pub fn digest(&self) -> Digest {
        let mut text = String::with_capacity(64);
        for byte in Sha256::digest(self.0.as_bytes()) {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Digest(text)
    }
}

impl FromStr for Secret {
    type Err = NoSecret;

    fn from_str(text: &str) -> Result<Self, NoSecret> {
        let is_of_it = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let is_one = LENGTHS.contains(&text.len()) && text.chars().all(is_of_it);
        is_one.then(|| Self(text.into())).ok_or(NoSecret)
    }
}

impl TryFrom<String> for Secret {
    type Error = NoSecret;

    fn try_from(text: String) -> Result<Self, NoSecret> {
        text.parse()
    }
}

impl From<Secret> for String {
    fn from(secret: Secret) -> Self {
        secret.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The SHA-256 of a secret, in hexadecimal digits. A secret has too many bits to be found from it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(String);

impl Digest {
    /// A short name for whoever has the secret.
    pub(crate) fn short(&self) -> &str {
        self.0.get(..SHORT).unwrap_or(&self.0)
    }

    /// Whether this is its short name, or more of it.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        name.len() >= SHORT && self.0.starts_with(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_read_as_they_were_written_and_never_shown_by_chance() {
        for secret in [Secret::credential().unwrap(), Secret::invitation().unwrap()] {
            assert_eq!(secret.as_str().parse(), Ok(secret.clone()));
            assert!(!format!("{secret:?}").contains(secret.as_str()));
            assert_ne!(secret, Secret::credential().unwrap());
        }
        assert_eq!("short".parse::<Secret>(), Err(NoSecret));
        assert_eq!("x".repeat(200).parse::<Secret>(), Err(NoSecret));
        assert_eq!("a b".repeat(9).parse::<Secret>(), Err(NoSecret));
    }
}
