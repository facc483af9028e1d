//! Encryption of a connection, by the Noise protocol `NNpsk0_25519_AESGCM_BLAKE2s` with the job's secret.
//!
//! ```text
//!  client                                   server
//!    psk, e (48)               ──────────▶
//!                              ◀──────────  e, ee (48)
//!    record                    ──────────▶             the server sends nothing before it has opened this one
//!    records                   ◀─────────▶
//!
//!  record:  | length u16, little-endian | ciphertext and tag, `length` bytes |
//! ```
//! The first message proves that the client knows the secret, the answer that the server does. Each record proves that
//! it comes from the end that shook hands, is whole, and is the next. Nothing is parsed before it has been opened. Keys
//! are fresh for each connection, so recorded bytes cannot be read later even with the secret.

use crate::secret::{Secret, refused};
use snow::{Builder, HandshakeState, TransportState};
use std::io;

const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_BLAKE2s";
/// Distinguishes this use of the secret from any other.
const PROLOGUE: &[u8] = b"redrt-noise-1";
pub(crate) const HANDSHAKE_BYTES: usize = 48;
const TAG_BYTES: usize = 16;
const LENGTH_BYTES: usize = 2;
/// Records after which a direction gets a new key: with AES-GCM the same key must not encrypt petabytes.
const RECORDS_PER_KEY: u64 = if cfg!(test) { 8 } else { 1 << 22 };
/// Plain bytes of the longest record.
pub const RECORD_BYTES_MAX: usize = u16::MAX as usize - TAG_BYTES;

/// Error for bytes that the other end has not sent in this form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("received what the other end has not encrypted")]
pub struct Forged;

impl From<Forged> for io::Error {
    fn from(forged: Forged) -> Self {
        Self::new(io::ErrorKind::InvalidData, forged)
    }
}

/// Both directions of one connection.
pub struct Cipher {
    state: TransportState,
    /// Bytes received and not opened yet.
    sealed: Vec<u8>,
    /// Length of the part that has been opened.
    opened: usize,
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cipher(hidden)")
    }
}

/// One end of a handshake under way.
pub(crate) struct Handshake(HandshakeState);

impl Handshake {
    /// Starts a handshake with no message sent.
    pub(crate) fn new(secret: &Secret, is_client: bool) -> io::Result<Self> {
        let make = || {
            let builder = Builder::new(PATTERN.parse()?).prologue(PROLOGUE)?.psk(0, secret.key())?;
            if is_client { builder.build_initiator() } else { builder.build_responder() }
        };
        make().map(Self).map_err(|error: snow::Error| io::Error::other(error.to_string()))
    }

    /// The next message of this end. The client begins.
    pub(crate) fn say(&mut self) -> io::Result<[u8; HANDSHAKE_BYTES]> {
        let mut message = [0; HANDSHAKE_BYTES];
        let length = self.0.write_message(&[], &mut message).map_err(|error| io::Error::other(error.to_string()))?;
        assert_eq!(length, HANDSHAKE_BYTES, "a handshake message has one size");
        Ok(message)
    }

    /// Takes the other end's message. A recorded first message passes here, but no later one does: the recorder does
    /// not know the key.
    pub(crate) fn handle(&mut self, message: &[u8]) -> io::Result<()> {
        let mut payload = [0; HANDSHAKE_BYTES];
        self.0.read_message(message, &mut payload).map(drop).map_err(|_| refused())
    }

    /// The cipher, once each end has sent its message.
    pub(crate) fn finish(self) -> io::Result<Cipher> {
        let state = self.0.into_transport_mode().map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Cipher { state, sealed: Vec::new(), opened: 0 })
    }
}

impl Cipher {
    /// Appends the records of `plain` to `out`.
    ///
    /// # Panics
    /// After 2⁶⁴ records.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        plain.chunks(RECORD_BYTES_MAX).for_each(|piece| self.seal_record(piece, out));
    }

    /// Appends one record of at most [`RECORD_BYTES_MAX`] bytes, which may be none.
    pub(crate) fn seal_record(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        let begin = out.len();
        out.resize(begin + Self::sealed_bytes(plain.len()), 0);
        let length = self.state.write_message(plain, &mut out[begin + LENGTH_BYTES..]);
        let length = length.expect("a record fits, and numbers do not run out");
        if self.state.sending_nonce().is_multiple_of(RECORDS_PER_KEY) {
            self.state.rekey_outgoing();
        }
        let length = u16::try_from(length).expect("a record has at most 65535 bytes");
        out[begin..begin + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    }

    /// Takes received bytes, and appends the contents of all complete records to `out`.
    ///
    /// # Errors
    /// When a record was not sealed by the other end. After that nothing more can be opened.
    pub fn open(&mut self, received: &[u8], out: &mut Vec<u8>) -> Result<(), Forged> {
        self.sealed.extend_from_slice(received);
        while let Some(head) = self.sealed.get(self.opened..self.opened + LENGTH_BYTES) {
            let length = usize::from(u16::from_le_bytes([head[0], head[1]]));
            if length < TAG_BYTES {
                return Err(Forged);
            }
            let begin = self.opened + LENGTH_BYTES;
            let Some(record) = self.sealed.get(begin..begin + length) else { break };
            let at = out.len();
            // The space for the tag is in use while the record is opened.
            out.resize(at + length, 0);
            let opened = self.state.read_message(record, &mut out[at..]);
            out.truncate(at + opened.as_ref().map_or(0, |length| *length));
            opened.map_err(|_| Forged)?;
            if self.state.receiving_nonce().is_multiple_of(RECORDS_PER_KEY) {
                self.state.rekey_incoming();
            }
            self.opened = begin + length;
        }
        self.sealed.drain(..self.opened);
        self.opened = 0;
        Ok(())
    }

    /// Length of the record of `count` plain bytes; at most [`RECORD_BYTES_MAX`].
    #[must_use]
    pub const fn sealed_bytes(count: usize) -> usize {
        LENGTH_BYTES + count + TAG_BYTES
    }

    /// Returns true if part of a record has been received.
    #[must_use]
    pub fn is_amid_record(&self) -> bool {
        !self.sealed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth;
    use proptest::prelude::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn connect(stream: &mut UnixStream, secret: &Secret) -> io::Result<Cipher> {
        auth::connect(stream, &secret.clone().sealing(true), b"").map(|cipher| cipher.expect("it seals"))
    }

    fn accept(stream: &mut UnixStream, secret: &Secret) -> io::Result<Cipher> {
        auth::accept(stream, &secret.clone().sealing(true), 0).map(|(_, cipher)| cipher.expect("it seals"))
    }

    fn meet(client: Secret, server: Secret) -> (io::Result<Cipher>, io::Result<Cipher>) {
        let (mut left, mut right) = UnixStream::pair().unwrap();
        let accepting = std::thread::spawn(move || accept(&mut right, &server));
        let connected = connect(&mut left, &client);
        drop(left);
        (connected, accepting.join().unwrap())
    }

    fn pair() -> (Cipher, Cipher) {
        let secret = Secret::generate().unwrap();
        let (client, server) = meet(secret.clone(), secret);
        (client.unwrap(), server.unwrap())
    }

    #[test]
    fn another_secret_is_refused_by_both() {
        let (client, server) = meet(Secret::generate().unwrap(), Secret::generate().unwrap());
        assert_eq!(server.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert!(client.is_err());
    }

    #[test]
    fn a_client_without_a_secret_learns_nothing_and_says_nothing() {
        let (mut left, mut right) = UnixStream::pair().unwrap();
        left.write_all(&[7; 8 + HANDSHAKE_BYTES]).unwrap();
        assert!(accept(&mut right, &Secret::generate().unwrap()).is_err());
        drop(right);
        assert_eq!(left.read(&mut [0; 64]).unwrap(), 0, "a stranger was answered");
    }

    /// Anybody can repeat the first message of a client. Nobody can repeat the proof, and without it there is no entry.
    #[test]
    fn a_recorded_conversation_opens_nothing() {
        let secret = Secret::generate().unwrap().sealing(true);
        let (connecting, greeting) = auth::Connecting::begin(&secret).unwrap();
        let (accepting, answer) = auth::Accepting::begin(std::slice::from_ref(&secret), &greeting).unwrap();
        let (proof, _) = connecting.finish(&answer, b"").unwrap();
        assert!(accepting.finish(&proof).is_ok());
        let (again, _) = auth::Accepting::begin(std::slice::from_ref(&secret), &greeting).unwrap();
        assert!(again.finish(&proof).is_err(), "a repeated proof");
        for made_up in [[16, 0, 1], [255, 255, 1], [0, 0, 0]] {
            let (again, _) = auth::Accepting::begin(std::slice::from_ref(&secret), &greeting).unwrap();
            let mut record = made_up.to_vec();
            record.resize(again.proof_bytes(0), 1);
            assert!(again.finish(&record).is_err(), "{made_up:?}");
        }
    }

    #[test]
    fn both_directions_change_their_keys_at_the_same_record() {
        let (mut client, mut server) = pair();
        for number in 0..5 * RECORDS_PER_KEY as u8 {
            let pass = |from: &mut Cipher, to: &mut Cipher| {
                let (mut sealed, mut plain) = (Vec::new(), Vec::new());
                from.seal(&[number], &mut sealed);
                to.open(&sealed, &mut plain).unwrap();
                assert_eq!(plain, [number]);
            };
            pass(&mut client, &mut server);
            if number % 3 == 0 {
                pass(&mut server, &mut client);
            }
        }
    }

    #[test]
    fn a_record_that_is_repeated_or_left_out_is_refused() {
        let (mut client, mut server) = pair();
        let mut records = [Vec::new(), Vec::new(), Vec::new()];
        records.iter_mut().for_each(|record| client.seal(b"message", record));
        let mut plain = Vec::new();
        server.open(&records[0], &mut plain).unwrap();
        assert_eq!(plain, b"message");
        assert_eq!(server.open(&records[0], &mut plain), Err(Forged));
        let (mut client, mut server) = pair();
        client.seal(b"one", &mut Vec::new());
        let mut second = Vec::new();
        client.seal(b"two", &mut second);
        assert_eq!(server.open(&second, &mut Vec::new()), Err(Forged));
    }

    proptest! {
        #[test]
        fn what_is_sealed_is_opened_however_it_is_cut(
            lengths in prop::collection::vec(0usize..3000, 0..6),
            long in prop::option::weighted(0.1, RECORD_BYTES_MAX - 2..RECORD_BYTES_MAX * 2 + 2),
            cut in 500usize..9000,
        ) {
            let (mut client, mut server) = pair();
            let (mut sealed, mut expected, mut plain) = (Vec::new(), Vec::new(), Vec::new());
            for (number, length) in lengths.into_iter().chain(long).enumerate() {
                let piece = vec![number as u8; length];
                client.seal(&piece, &mut sealed);
                expected.extend(piece);
            }
            for piece in sealed.chunks(cut) {
                server.open(piece, &mut plain).unwrap();
            }
            prop_assert!(plain == expected && !server.is_amid_record());
        }

        /// Changed or invented bytes never open as other contents.
        #[test]
        fn what_was_changed_on_its_way_is_refused(
            length in 0usize..500, at in any::<prop::sample::Index>(), bit in 0u32..8,
        ) {
            let (mut client, mut server) = pair();
            let mut sealed = Vec::new();
            client.seal(&vec![3; length + 1], &mut sealed);
            let place = at.index(sealed.len());
            sealed[place] ^= 1 << bit;
            let mut plain = Vec::new();
            // A length that is too long leaves the record incomplete.
            let outcome = server.open(&sealed, &mut plain);
            prop_assert!(plain.is_empty() && (outcome.is_err() || server.is_amid_record()));
        }

        #[test]
        fn any_bytes_are_refused_or_waited_for(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let (_, mut server) = pair();
            let mut plain = Vec::new();
            let _ = server.open(&bytes, &mut plain);
            prop_assert!(plain.is_empty());
        }
    }
}
