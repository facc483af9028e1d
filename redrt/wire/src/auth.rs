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

use std::io::{self, Read, Write};

/// The job's secret: 32 random bytes, handed to daemons by standard input and to processes by an inherited descriptor.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
pub struct Secret(pub [u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

impl Secret {
    /// A fresh secret from the system's random source.
    pub fn generate() -> io::Result<Self> {
        Ok(Self(random_bytes()?))
    }

    /// Written as 64 hexadecimal digits.
    #[must_use]
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Read from 64 hexadecimal digits; `None` when the text is anything else.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let text = text.as_bytes();
        if text.len() != 64 {
            return None;
        }
        let mut secret = [0; 32];
        for (byte, pair) in secret.iter_mut().zip(text.chunks_exact(2)) {
            let digit = |c: u8| (c as char).to_digit(16);
            *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Some(Self(secret))
    }

    fn mac(&self, role: &[u8; 8], client: &[u8; 32], server: &[u8; 32]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(role).update(client).update(server);
        hasher.finalize()
    }
}

fn random_bytes() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "the other end does not know this job's secret")
}

/// Authenticates as the connecting side. The stream must be blocking and have a timeout set.
pub fn connect(stream: &mut (impl Read + Write), secret: &Secret) -> io::Result<()> {
    let client = random_bytes()?;
    stream.write_all(&client)?;
    let mut server = [0; 32];
    let mut proof = [0; 32];
    stream.read_exact(&mut server)?;
    stream.read_exact(&mut proof)?;
    if secret.mac(b"redrt-s1", &client, &server) != blake3::Hash::from_bytes(proof) {
        return Err(refused());
    }
    stream.write_all(secret.mac(b"redrt-c1", &client, &server).as_bytes())
}

/// Authenticates as the accepting side. The stream must be blocking and have a timeout set.
pub fn accept(stream: &mut (impl Read + Write), secret: &Secret) -> io::Result<()> {
    let mut client = [0; 32];
    stream.read_exact(&mut client)?;
    let server = random_bytes()?;
    let mut answer = [0; 64];
    answer[..32].copy_from_slice(&server);
    answer[32..].copy_from_slice(secret.mac(b"redrt-s1", &client, &server).as_bytes());
    stream.write_all(&answer)?;
    let mut proof = [0; 32];
    stream.read_exact(&mut proof)?;
    if secret.mac(b"redrt-c1", &client, &server) == blake3::Hash::from_bytes(proof) { Ok(()) } else { Err(refused()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn meet(client: Secret, server: Secret) -> (io::Result<()>, io::Result<()>) {
        let (mut left, mut right) = UnixStream::pair().unwrap();
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
    fn hex_round_trips_and_rejects_rubbish() {
        let secret = Secret([0xa7; 32]);
        assert_eq!(Secret::from_hex(&secret.to_hex()).unwrap().0, secret.0);
        assert!(Secret::from_hex("zz").is_none());
        assert!(Secret::from_hex(&"é".repeat(32)).is_none());
    }
}
