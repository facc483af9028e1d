//! Mutual authentication by a shared secret, before anything else is read from a connection.
//!
//! ```text
//!  client                                   server
//!    id of the secret (8), e (48)  ───────▶            where everything is encrypted: see `seal`
//!                              ◀──────────  e, ee (48)
//!    record: name              ──────────▶             only now it is known that the greeting was not recorded
//!
//!    nonce_c (32)              ──────────▶             links of processes, encrypted only if the user says so
//!                              ◀──────────  nonce_s (32) · mac(server, nonce_c, nonce_s) (32)
//!    mac(client, nonce_c, nonce_s, name) (32), name ──▶
//! ```
//! The mac is blake3 keyed with the secret. Every step has a fixed size, so nothing is parsed from a stranger. The role
//! labels differ, so that one side's answer cannot be reflected to it. The name identifies the client: nothing, or a
//! record whose size the server knows.

use crate::seal::{self, Cipher};
use crate::secret::{ID_BYTES, Secret, random_bytes, refused};
use std::io::{self, Read, Write};

/// The connecting side of a handshake under way. It has no stream: a caller with many connections moves the bytes
/// itself.
pub struct Connecting {
    secret: Secret,
    stage: Stage,
}

/// The accepting side of a handshake under way.
pub struct Accepting {
    secret: Secret,
    key: usize,
    stage: Stage,
}

enum Stage {
    Plain { client: [u8; NONCE_BYTES], server: [u8; NONCE_BYTES] },
    Sealing(Box<seal::Handshake>),
}

const NONCE_BYTES: usize = 32;
const MAC_BYTES: usize = blake3::OUT_LEN;

impl Connecting {
    /// Begins a handshake. Also returns the greeting to send.
    pub fn begin(secret: &Secret) -> io::Result<(Self, Vec<u8>)> {
        let (stage, greeting) = if secret.is_sealing() {
            let mut handshake = seal::Handshake::new(secret, true)?;
            let greeting = [&secret.id()[..], &handshake.say()?].concat();
            (Stage::Sealing(Box::new(handshake)), greeting)
        } else {
            let client = random_bytes()?;
            (Stage::Plain { client, server: [0; NONCE_BYTES] }, client.to_vec())
        };
        Ok((Self { secret: secret.clone(), stage }, greeting))
    }

    /// Length in bytes of the answer.
    #[must_use]
    pub fn answer_bytes(&self) -> usize {
        match self.stage {
            Stage::Plain { .. } => NONCE_BYTES + MAC_BYTES,
            Stage::Sealing(_) => seal::HANDSHAKE_BYTES,
        }
    }

    /// Checks the answer. Returns the proof to send, with this side's `name`, and the cipher for later bytes if the
    /// connection is encrypted.
    pub fn finish(self, answer: &[u8], name: &[u8]) -> io::Result<(Vec<u8>, Option<Cipher>)> {
        match self.stage {
            Stage::Sealing(mut handshake) => {
                handshake.handle(answer)?;
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
    /// Length in bytes of the connecting side's greeting.
    #[must_use]
    pub fn greeting_bytes(is_sealing: bool) -> usize {
        if is_sealing { ID_BYTES + seal::HANDSHAKE_BYTES } else { NONCE_BYTES }
    }

    /// Begins with that greeting, which must be made with one of `secrets`. All of them must seal, or none. Also
    /// returns the answer to send.
    pub fn begin(secrets: &[Secret], greeting: &[u8]) -> io::Result<(Self, Vec<u8>)> {
        let first = secrets.first().ok_or_else(refused)?;
        if first.is_sealing() {
            let (id, greeting) = greeting.split_first_chunk::<ID_BYTES>().ok_or_else(refused)?;
            let key = secrets.iter().position(|secret| secret.id() == *id).ok_or_else(refused)?;
            let secret = secrets[key].clone();
            let mut handshake = seal::Handshake::new(&secret, false)?;
            handshake.handle(greeting)?;
            let answer = handshake.say()?;
            return Ok((Self { secret, key, stage: Stage::Sealing(Box::new(handshake)) }, answer.to_vec()));
        }
        let client = greeting.try_into().map_err(|_| refused())?;
        let server = random_bytes()?;
        let proof = first.mac(b"redrt-s1", &client, &server, b"");
        let answer = [&server[..], proof.as_bytes()].concat();
        Ok((Self { secret: first.clone(), key: 0, stage: Stage::Plain { client, server } }, answer))
    }

    /// Index of the secret that the connecting side has used.
    #[must_use]
    pub fn key(&self) -> usize {
        self.key
    }

    /// Length in bytes of the connecting side's proof, for a name of `name_bytes` bytes.
    #[must_use]
    pub fn proof_bytes(&self, name_bytes: usize) -> usize {
        match self.stage {
            Stage::Plain { .. } => MAC_BYTES + name_bytes,
            Stage::Sealing(_) => Cipher::sealed_bytes(name_bytes),
        }
    }

    /// Checks the proof, without which a recorded greeting would be as good as a new one. Returns the connecting side's
    /// name, and the cipher for later bytes if the connection is encrypted.
    pub fn finish(self, proof: &[u8]) -> io::Result<(Vec<u8>, Option<Cipher>)> {
        match self.stage {
            Stage::Sealing(handshake) => {
                let mut cipher = handshake.finish()?;
                let mut name = Vec::new();
                cipher.open(proof, &mut name).map_err(|_| refused())?;
                // A record that claims to be longer than the proof is invalid.
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
/// blocking and limited in time: [`crate::deadline::Limited`].
pub fn connect(stream: &mut (impl Read + Write), secret: &Secret, name: &[u8]) -> io::Result<Option<Cipher>> {
    let (connecting, greeting) = Connecting::begin(secret)?;
    stream.write_all(&greeting)?;
    let mut answer = vec![0; connecting.answer_bytes()];
    stream.read_exact(&mut answer)?;
    let (proof, cipher) = connecting.finish(&answer, name)?;
    stream.write_all(&proof)?;
    Ok(cipher)
}

/// Authenticates as the accepting side. Returns the other end's name, of `name_bytes` bytes, and a cipher if the secret
/// seals. The stream must be blocking and limited in time: [`crate::deadline::Limited`].
pub fn accept(
    stream: &mut (impl Read + Write),
    secret: &Secret,
    name_bytes: usize,
) -> io::Result<(Vec<u8>, Option<Cipher>)> {
    let mut greeting = vec![0; Accepting::greeting_bytes(secret.is_sealing())];
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
        // With different forms of the handshake, each end waits for the other.
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
}
