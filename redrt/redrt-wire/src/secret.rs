//! The secret that both ends of a connection must know.

use std::io;

/// A secret: 32 random bytes, and true if the connections that it opens are encrypted, so that both ends agree on that.
/// `redrun`, its daemons and `redctl` know the secret of a job. Processes know the one of their links, which is derived
/// from it.
#[derive(Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Secret {
    key: [u8; 32],
    is_sealing: bool,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// Bytes of a secret's identifier.
pub(crate) const ID_BYTES: usize = 8;
/// Suffix in the text of a secret whose connections are encrypted.
const SEALING: &str = ":sealed";

impl Secret {
    /// A secret of these bytes, which authenticates and does not encrypt.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Self {
        Self { key, is_sealing: false }
    }

    /// A fresh secret from the system's random source.
    pub fn generate() -> io::Result<Self> {
        Ok(Self::new(random_bytes()?))
    }

    /// The same secret for connections that are encrypted, or not.
    #[must_use]
    pub fn sealing(self, is_sealing: bool) -> Self {
        Self { is_sealing, ..self }
    }

    /// Returns true if connections are encrypted.
    #[must_use]
    pub fn is_sealing(&self) -> bool {
        self.is_sealing
    }

    /// Its 32 bytes.
    #[must_use]
    pub fn key(&self) -> &[u8; 32] {
        &self.key
    }

    /// Text of the secret: 64 hexadecimal digits, and a suffix if connections are encrypted.
    #[must_use]
    pub fn to_text(&self) -> String {
        let digits: String = self.key.iter().map(|byte| format!("{byte:02x}")).collect();
        digits + if self.is_sealing { SEALING } else { "" }
    }

    /// Parses that text; `None` for any other.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let (text, is_sealing) = text.strip_suffix(SEALING).map_or((text, false), |digits| (digits, true));
        let text = text.as_bytes();
        if text.len() != 64 {
            return None;
        }
        let mut key = [0; 32];
        for (place, pair) in key.iter_mut().zip(text.chunks_exact(2)) {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            *place = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Some(Self { key, is_sealing })
    }

    /// The secret of the links between a job's processes, which other jobs may be told. It opens nothing else.
    #[must_use]
    pub fn of_links(&self) -> Self {
        self.derive("redrt links of processes")
    }

    /// The secret of the connections over which a job's processes are copied. It opens nothing else.
    #[must_use]
    pub fn of_images(&self) -> Self {
        self.derive("redrt images of processes")
    }

    /// Derives a secret for one purpose, which does not reveal this one.
    #[must_use]
    pub fn derive(&self, purpose: &str) -> Self {
        Self { key: blake3::derive_key(purpose, &self.key), is_sealing: self.is_sealing }
    }

    /// Identifier that tells the accepting side which secret is used. It does not reveal the secret.
    pub(crate) fn id(&self) -> [u8; ID_BYTES] {
        let name = blake3::derive_key("redrt name of a secret", &self.key);
        *name.first_chunk().expect("it has 32 bytes")
    }

    pub(crate) fn mac(&self, role: &[u8; 8], client: &[u8; 32], server: &[u8; 32], name: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(role).update(client).update(server).update(name);
        hasher.finalize()
    }
}

pub(crate) fn random_bytes() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

/// Error for the user when a handshake fails.
pub(crate) fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "the other end does not know this job's secret")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_secrets_differ_by_purpose() {
        let secret = Secret::new([1; 32]).sealing(true);
        assert_eq!(secret.derive("one"), secret.derive("one"));
        assert!(secret.derive("one") != secret.derive("other") && secret.derive("one") != secret);
        assert!(secret.derive("one").is_sealing());
    }

    #[test]
    fn text_round_trips_and_rejects_rubbish() {
        for secret in [Secret::new([0xa7; 32]), Secret::new([0x0b; 32]).sealing(true)] {
            assert_eq!(Secret::from_text(&secret.to_text()), Some(secret));
        }
        for rubbish in ["zz", &"é".repeat(32), &format!("{}:closed", "00".repeat(32)), ":sealed"] {
            assert!(Secret::from_text(rubbish).is_none(), "{rubbish}");
        }
    }
}
