//! Mutual authentication by the job's secret, before anything else is read from a connection.
//!
//! ```text
//!  client                                   server
//!    nonce_c (32)              ──────────▶
//!                              ◀──────────  nonce_s (32) · mac(server, nonce_c, nonce_s) (32)
//!    mac(client, nonce_c, nonce_s) (32) ──▶
//! ```
//! The mac is blake3 keyed with the secret. Every step is of fixed size, so nothing is parsed from a stranger. The
//! different role labels keep one side's answer from being reflected to it.

use crate::seal::{self, Cipher};
use std::io::{self, Read, Write};

/// The job's secret: 32 random bytes, handed to daemons by standard input and to processes by an inherited descriptor. It
/// says as well whether the job's connections are encrypted, so that no two of its processes differ in that.
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

/// Follows the digits of a secret whose connections are encrypted.
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

    /// The same secret for a job whose connections are encrypted, or are not.
    #[must_use]
    pub fn sealing(self, is_sealing: bool) -> Self {
        Self { is_sealing, ..self }
    }

    /// Whether the job's connections are encrypted.
    #[must_use]
    pub fn is_sealing(&self) -> bool {
        self.is_sealing
    }

    /// Its bytes.
    #[must_use]
    pub fn key(&self) -> &[u8; 32] {
        &self.key
    }

    /// Written as 64 hexadecimal digits, and what is done with it.
    #[must_use]
    pub fn to_text(&self) -> String {
        let digits: String = self.key.iter().map(|byte| format!("{byte:02x}")).collect();
        digits + if self.is_sealing { SEALING } else { "" }
    }

    /// Read from that; `None` when the text is anything else.
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

    /// A secret for one purpose, from which this one cannot be found.
    #[must_use]
    pub fn derive(&self, purpose: &str) -> Self {
        Self { key: blake3::derive_key(purpose, &self.key), is_sealing: self.is_sealing }
    }

    fn mac(&self, role: &[u8; 8], client: &[u8; 32], server: &[u8; 32]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(role).update(client).update(server);
        hasher.finalize()
    }
}

fn random_bytes() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

pub(crate) fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "the other end does not know this job's secret")
}

/// The connecting side of a handshake that has begun. It has no stream: who has many to serve at once says and hears for it.
pub struct Connecting {
    secret: Secret,
    stage: Stage,
}

/// The accepting side, likewise.
pub struct Accepting {
    secret: Secret,
    stage: Stage,
}

enum Stage {
    Plain { client: [u8; NONCE_BYTES], server: [u8; NONCE_BYTES] },
    Sealing(Box<seal::Handshake>),
}

const NONCE_BYTES: usize = 32;
const MAC_BYTES: usize = blake3::OUT_LEN;

impl Connecting {
    /// Begins, with what is to be said first.
    pub fn begin(secret: &Secret) -> io::Result<(Self, Vec<u8>)> {
        let (stage, greeting) = if secret.is_sealing {
            let mut handshake = seal::Handshake::new(secret, true)?;
            let greeting = handshake.say()?;
            (Stage::Sealing(Box::new(handshake)), greeting.to_vec())
        } else {
            let client = random_bytes()?;
            (Stage::Plain { client, server: [0; NONCE_BYTES] }, client.to_vec())
        };
        Ok((Self { secret: secret.clone(), stage }, greeting))
    }

    /// How long the answer is.
    #[must_use]
    pub fn answer_bytes(&self) -> usize {
        match self.stage {
            Stage::Plain { .. } => NONCE_BYTES + MAC_BYTES,
            Stage::Sealing(_) => seal::HANDSHAKE_BYTES,
        }
    }

    /// Checks the answer. What is to be said then, and the cipher for what follows if the job's connections are encrypted.
    pub fn finish(self, answer: &[u8]) -> io::Result<(Vec<u8>, Option<Cipher>)> {
        match self.stage {
            Stage::Sealing(mut handshake) => {
                handshake.hear(answer)?;
                Ok((Vec::new(), Some(handshake.finish()?)))
            }
            Stage::Plain { client, .. } => {
                let (server, proof) = answer.split_first_chunk().ok_or_else(refused)?;
                if self.secret.mac(b"redrt-s1", &client, server) != *proof {
                    return Err(refused());
                }
                Ok((self.secret.mac(b"redrt-c1", &client, server).as_bytes().to_vec(), None))
            }
        }
    }
}

impl Accepting {
    /// How long the connecting side's greeting is.
    #[must_use]
    pub fn greeting_bytes(secret: &Secret) -> usize {
        if secret.is_sealing { seal::HANDSHAKE_BYTES } else { NONCE_BYTES }
    }

    /// Begins with that greeting. What is to be answered.
    pub fn begin(secret: &Secret, greeting: &[u8]) -> io::Result<(Self, Vec<u8>)> {
        let (stage, answer) = if secret.is_sealing {
            let mut handshake = seal::Handshake::new(secret, false)?;
            handshake.hear(greeting)?;
            let answer = handshake.say()?;
            (Stage::Sealing(Box::new(handshake)), answer.to_vec())
        } else {
            let client = greeting.try_into().map_err(|_| refused())?;
            let server = random_bytes()?;
            let proof = secret.mac(b"redrt-s1", &client, &server);
            (Stage::Plain { client, server }, [&server[..], proof.as_bytes()].concat())
        };
        Ok((Self { secret: secret.clone(), stage }, answer))
    }

    /// How long the connecting side's proof is.
    #[must_use]
    pub fn proof_bytes(&self) -> usize {
        match self.stage {
            Stage::Plain { .. } => MAC_BYTES,
            Stage::Sealing(_) => 0,
        }
    }

    /// Checks the proof. The cipher for what follows if the job's connections are encrypted.
    pub fn finish(self, proof: &[u8]) -> io::Result<Option<Cipher>> {
        match self.stage {
            Stage::Sealing(handshake) => handshake.finish().map(Some),
            Stage::Plain { client, server } if self.secret.mac(b"redrt-c1", &client, &server) == *proof => Ok(None),
            Stage::Plain { .. } => Err(refused()),
        }
    }
}

/// Authenticates as the connecting side, and agrees on a cipher if the job's connections are encrypted. The stream must be
/// blocking and have a timeout set.
pub fn connect(stream: &mut (impl Read + Write), secret: &Secret) -> io::Result<Option<Cipher>> {
    let (connecting, greeting) = Connecting::begin(secret)?;
    stream.write_all(&greeting)?;
    let mut answer = vec![0; connecting.answer_bytes()];
    stream.read_exact(&mut answer)?;
    let (proof, cipher) = connecting.finish(&answer)?;
    stream.write_all(&proof)?;
    Ok(cipher)
}

/// Authenticates as the accepting side, and agrees on a cipher if the job's connections are encrypted. The stream must be
/// blocking and have a timeout set.
pub fn accept(stream: &mut (impl Read + Write), secret: &Secret) -> io::Result<Option<Cipher>> {
    let mut greeting = vec![0; Accepting::greeting_bytes(secret)];
    stream.read_exact(&mut greeting)?;
    let (accepting, answer) = Accepting::begin(secret, &greeting)?;
    stream.write_all(&answer)?;
    let mut proof = vec![0; accepting.proof_bytes()];
    stream.read_exact(&mut proof)?;
    accepting.finish(&proof)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn meet(client: Secret, server: Secret) -> (io::Result<Option<Cipher>>, io::Result<Option<Cipher>>) {
        let (mut left, mut right) = UnixStream::pair().unwrap();
        // Of two that do not speak the same way, each waits for the other.
        let patience = Some(std::time::Duration::from_millis(200));
        left.set_read_timeout(patience).unwrap();
        right.set_read_timeout(patience).unwrap();
        let accepting = std::thread::spawn(move || accept(&mut right, &server));
        let connected = connect(&mut left, &client);
        drop(left);
        (connected, accepting.join().unwrap())
    }

    #[test]
    fn the_same_secret_opens_and_another_does_not() {
        let secret = Secret::generate().unwrap();
        let (connected, accepted) = meet(secret.clone(), secret.clone());
        assert!(connected.is_ok() && accepted.is_ok());
        let (connected, accepted) = meet(secret, Secret::generate().unwrap());
        assert!(connected.is_err() && accepted.is_err());
    }

    #[test]
    fn one_who_encrypts_and_one_who_does_not_part() {
        let secret = Secret::generate().unwrap();
        for sealing in [false, true] {
            let (connected, accepted) = meet(secret.clone().sealing(sealing), secret.clone().sealing(!sealing));
            assert!(connected.is_err() && accepted.is_err());
            let (connected, accepted) = meet(secret.clone().sealing(sealing), secret.clone().sealing(sealing));
            assert_eq!((connected.unwrap().is_some(), accepted.unwrap().is_some()), (sealing, sealing));
        }
    }

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
