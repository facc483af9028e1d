//! Mutual authentication by a shared secret, before anything else is read from a connection.
//!
//! ```text
//!  client                                   server
//!    id of the secret (8), e (48)  ───────▶            where everything is encrypted: see `seal`
//!                              ◀──────────  e, ee (48)
//!    record: name              ──────────▶             the server knows only now that the greeting is not a recorded one
//!
//!    nonce_c (32)              ──────────▶             links of processes, which are not encrypted unless the user says so
//!                              ◀──────────  nonce_s (32) · mac(server, nonce_c, nonce_s) (32)
//!    mac(client, nonce_c, nonce_s, name) (32), name ──▶
//! ```
//! The mac is blake3 keyed with the secret. Every step is of fixed size, so nothing is parsed from a stranger. The
//! different role labels keep one side's answer from being reflected to it. The name is what the client says of itself:
//! nothing, or a record whose size the server knows.

use crate::seal::{self, Cipher};
use std::io::{self, Read, Write};

/// A secret: 32 random bytes, and whether the connections that it opens are encrypted, so that no two ends differ in
/// that. The secret of a job is known to `redrun`, its daemons and `redctl`. Processes know the one of their links,
/// which is derived from it.
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

    /// The same secret for connections that are encrypted, or are not.
    #[must_use]
    pub fn sealing(self, is_sealing: bool) -> Self {
        Self { is_sealing, ..self }
    }

    /// Whether connections are encrypted.
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

    /// The secret of the links between a job's processes, which other jobs may be told as well. It opens nothing else.
    #[must_use]
    pub fn of_links(&self) -> Self {
        self.derive("redrt links of processes")
    }

    /// The secret of the connections over which a job's processes are copied. It opens nothing else.
    #[must_use]
    pub fn of_images(&self) -> Self {
        self.derive("redrt images of processes")
    }

    /// A secret for one purpose, from which this one cannot be found.
    #[must_use]
    pub fn derive(&self, purpose: &str) -> Self {
        Self { key: blake3::derive_key(purpose, &self.key), is_sealing: self.is_sealing }
    }

    /// Tells the accepting side which secret is used. The secret cannot be found from it.
    fn id(&self) -> [u8; ID_BYTES] {
        let name = blake3::derive_key("redrt name of a secret", &self.key);
        *name.first_chunk().expect("it has 32 bytes")
    }

    fn mac(&self, role: &[u8; 8], client: &[u8; 32], server: &[u8; 32], name: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(role).update(client).update(server).update(name);
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

/// The connecting side of a handshake that has begun. It has no stream: who has many to serve at once says and hears
/// for it.
pub struct Connecting {
    secret: Secret,
    stage: Stage,
}

/// The accepting side, likewise.
pub struct Accepting {
    secret: Secret,
    key: usize,
    stage: Stage,
}

enum Stage {
    Plain { client: [u8; NONCE_BYTES], server: [u8; NONCE_BYTES] },
    Sealing(Box<seal::Handshake>),
}

const ID_BYTES: usize = 8;
const NONCE_BYTES: usize = 32;
const MAC_BYTES: usize = blake3::OUT_LEN;

impl Connecting {
    /// Begins, with what is to be said first.
    pub fn begin(secret: &Secret) -> io::Result<(Self, Vec<u8>)> {
        let (stage, greeting) = if secret.is_sealing {
            let mut handshake = seal::Handshake::new(secret, true)?;
            let greeting = [&secret.id()[..], &handshake.say()?].concat();
            (Stage::Sealing(Box::new(handshake)), greeting)
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

    /// Checks the answer. What is to be said then, with this side's `name`, and the cipher for what follows if the
    /// connection is encrypted.
    pub fn finish(self, answer: &[u8], name: &[u8]) -> io::Result<(Vec<u8>, Option<Cipher>)> {
        match self.stage {
            Stage::Sealing(mut handshake) => {
                handshake.hear(answer)?;
                let mut cipher = handshake.finish()?;
                let mut proof = Vec::new();
                cipher.seal_record(name, &mut proof);
                Ok((proof, Some(cipher)))
            }
            Stage::Plain { client, .. } => {
                let (server, proof) = answer.split_first_chunk().ok_or_else(refused)?;
                if self.secret.mac(b"redrt-s1", &client, server, b"") != *proof {
                    return Err(refused());
                }
                let mac = self.secret.mac(b"redrt-c1", &client, server, name);
                Ok(([mac.as_bytes(), name].concat(), None))
            }
        }
    }
}

impl Accepting {
    /// How long the connecting side's greeting is.
    #[must_use]
    pub fn greeting_bytes(is_sealing: bool) -> usize {
        if is_sealing { ID_BYTES + seal::HANDSHAKE_BYTES } else { NONCE_BYTES }
    }

    /// Begins with that greeting, which must be made with one of `secrets`. All or none of them seal. What is to be
    /// answered.
    pub fn begin(secrets: &[Secret], greeting: &[u8]) -> io::Result<(Self, Vec<u8>)> {
        let first = secrets.first().ok_or_else(refused)?;
        if first.is_sealing {
            let (id, greeting) = greeting.split_first_chunk::<ID_BYTES>().ok_or_else(refused)?;
            let key = secrets.iter().position(|secret| secret.id() == *id).ok_or_else(refused)?;
            let secret = secrets[key].clone();
            let mut handshake = seal::Handshake::new(&secret, false)?;
            handshake.hear(greeting)?;
            let answer = handshake.say()?;
            return Ok((Self { secret, key, stage: Stage::Sealing(Box::new(handshake)) }, answer.to_vec()));
        }
        let client = greeting.try_into().map_err(|_| refused())?;
        let server = random_bytes()?;
        let proof = first.mac(b"redrt-s1", &client, &server, b"");
        let answer = [&server[..], proof.as_bytes()].concat();
        Ok((Self { secret: first.clone(), key: 0, stage: Stage::Plain { client, server } }, answer))
    }

    /// Which of the secrets the connecting side has used.
    #[must_use]
    pub fn key(&self) -> usize {
        self.key
    }

    /// How long the connecting side's proof is, when its name has `name_bytes` bytes.
    #[must_use]
    pub fn proof_bytes(&self, name_bytes: usize) -> usize {
        match self.stage {
            Stage::Plain { .. } => MAC_BYTES + name_bytes,
            Stage::Sealing(_) => Cipher::sealed_bytes(name_bytes),
        }
    }

    /// Checks the proof, without which a recorded greeting would be as good as a new one. The connecting side's name,
    /// and the cipher for what follows if the connection is encrypted.
    pub fn finish(self, proof: &[u8]) -> io::Result<(Vec<u8>, Option<Cipher>)> {
        match self.stage {
            Stage::Sealing(handshake) => {
                let mut cipher = handshake.finish()?;
                let mut name = Vec::new();
                cipher.open(proof, &mut name).map_err(|_| refused())?;
                // A record that claims to be longer than the proof is none.
                if cipher.is_amid_record() { Err(refused()) } else { Ok((name, Some(cipher))) }
            }
            Stage::Plain { client, server } => {
                let (mac, name) = proof.split_first_chunk::<MAC_BYTES>().ok_or_else(refused)?;
                let is_proved = self.secret.mac(b"redrt-c1", &client, &server, name) == *mac;
                if is_proved { Ok((name.to_vec(), None)) } else { Err(refused()) }
            }
        }
    }
}

/// Authenticates as the connecting side under this name, and agrees on a cipher if the secret seals. The stream must be
/// blocking and have a limit of time: [`crate::deadline::Limited`].
pub fn connect(stream: &mut (impl Read + Write), secret: &Secret, name: &[u8]) -> io::Result<Option<Cipher>> {
    let (connecting, greeting) = Connecting::begin(secret)?;
    stream.write_all(&greeting)?;
    let mut answer = vec![0; connecting.answer_bytes()];
    stream.read_exact(&mut answer)?;
    let (proof, cipher) = connecting.finish(&answer, name)?;
    stream.write_all(&proof)?;
    Ok(cipher)
}

/// Authenticates as the accepting side; the other end's name, of `name_bytes` bytes, and a cipher if the secret seals.
/// The stream must be blocking and have a limit of time: [`crate::deadline::Limited`].
pub fn accept(
    stream: &mut (impl Read + Write),
    secret: &Secret,
    name_bytes: usize,
) -> io::Result<(Vec<u8>, Option<Cipher>)> {
    let mut greeting = vec![0; Accepting::greeting_bytes(secret.is_sealing)];
    stream.read_exact(&mut greeting)?;
    let (accepting, answer) = Accepting::begin(std::slice::from_ref(secret), &greeting)?;
    stream.write_all(&answer)?;
    let mut proof = vec![0; accepting.proof_bytes(name_bytes)];
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
        let accepting = std::thread::spawn(move || {
            accept(&mut right, &server, 4).map(|(name, cipher)| {
                assert_eq!(name, b"name");
                cipher
            })
        });
        let connected = connect(&mut left, &client, b"name");
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
