//! Encryption of a stream: Noise, pattern NNpsk0 with the shared secret, AES-256-GCM and BLAKE2s.
//!
//! ```text
//!  source                        destination
//!    e (48)         ──────────▶
//!                   ◀──────────  e, ee (48)
//!    records        ◀─────────▶  records: 0..2 length, 2..4 writer, then ciphertext
//! ```
//! Both sides hash the greeting into the keys, so a stream cannot be passed off as another one. Keys live as long as
//! the connection: an attacker who learns the secret later cannot read recorded traffic.
//!
//! The trap: a nonce must never be used twice with one key, but the destination sends from two processes, one after the
//! other, that do not share a record count. So the second *writer* has a range of nonces of its own, and the reader
//! takes no record of the first writer after one of the second.

use redrt_wire::secret::Secret;
use snow::{Builder, HandshakeState, StatelessTransportState};
use std::io::{self, Read, Write};
use std::sync::Arc;

const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_BLAKE2s";
/// Longest ciphertext of a record, without its head; the limit of Noise.
const RECORD_BYTES_MAX: usize = 65_535;
const TAG_BYTES: usize = 16;
const TEXT_BYTES_MAX: usize = RECORD_BYTES_MAX - TAG_BYTES;
const HEAD_BYTES: usize = 4;
const HANDSHAKE_BYTES: usize = 48;
/// Bits of the nonce that count a writer's records; the writer's number is above them.
const NUMBER_BITS: u32 = 48;

fn wrong(error: snow::Error) -> io::Error {
    let text = format!("the connection cannot be encrypted: {error}; do both sides have the same secret?");
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

/// Session keys of one connection, for both directions.
#[derive(Clone)]
pub struct Keys(Arc<StatelessTransportState>);

/// Agrees on keys as the connecting side. `greeting` is what was sent before; both sides must pass the same bytes.
pub fn initiate(stream: &mut (impl Read + Write), secret: &Secret, greeting: &[u8]) -> io::Result<Keys> {
    let mut state = builder(secret, greeting)?.build_initiator().map_err(wrong)?;
    send(&mut state, stream)?;
    take(&mut state, stream)?;
    keys(state)
}

/// Agrees on keys as the accepting side.
pub fn respond(stream: &mut (impl Read + Write), secret: &Secret, greeting: &[u8]) -> io::Result<Keys> {
    let mut state = builder(secret, greeting)?.build_responder().map_err(wrong)?;
    take(&mut state, stream)?;
    send(&mut state, stream)?;
    keys(state)
}

fn builder<'a>(secret: &'a Secret, greeting: &'a [u8]) -> io::Result<Builder<'a>> {
    let pattern = PATTERN.parse().map_err(wrong)?;
    Builder::new(pattern).psk(0, secret.key()).and_then(|builder| builder.prologue(greeting)).map_err(wrong)
}

fn send(state: &mut HandshakeState, stream: &mut impl Write) -> io::Result<()> {
    let mut message = [0; HANDSHAKE_BYTES];
    let count = state.write_message(&[], &mut message).map_err(wrong)?;
    assert_eq!(count, HANDSHAKE_BYTES, "a key and a tag");
    stream.write_all(&message)
}

fn take(state: &mut HandshakeState, stream: &mut impl Read) -> io::Result<()> {
    let mut message = [0; HANDSHAKE_BYTES];
    stream.read_exact(&mut message)?;
    state.read_message(&message, &mut []).map(drop).map_err(wrong)
}

fn keys(state: HandshakeState) -> io::Result<Keys> {
    Ok(Keys(Arc::new(state.into_stateless_transport_mode().map_err(wrong)?)))
}

/// Encrypts everything written; [`SecureReader`] at the other end decrypts it. A record leaves when it is full or
/// flushed.
pub struct SecureWriter<W> {
    inner: W,
    keys: Keys,
    writer: u16,
    count: u64,
    text: Vec<u8>,
    record: Vec<u8>,
}

impl<W: Write> SecureWriter<W> {
    /// Writers of one side need ascending `writer` numbers, and must not overlap in time: nonces depend on them.
    pub fn new(inner: W, keys: Keys, writer: u16) -> Self {
        let record = vec![0; HEAD_BYTES + RECORD_BYTES_MAX];
        Self { inner, keys, writer, count: 0, text: Vec::with_capacity(TEXT_BYTES_MAX), record }
    }

    fn seal(&mut self) -> io::Result<()> {
        if self.text.is_empty() {
            return Ok(());
        }
        let number = u64::from(self.writer) << NUMBER_BITS | self.count;
        self.count += 1;
        let count = self.keys.0.write_message(number, &self.text, &mut self.record[HEAD_BYTES..]).map_err(wrong)?;
        self.text.clear();
        self.record[..2].copy_from_slice(&(count as u16).to_le_bytes());
        self.record[2..4].copy_from_slice(&self.writer.to_le_bytes());
        self.inner.write_all(&self.record[..HEAD_BYTES + count])
    }
}

impl<W: Write> Write for SecureWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(TEXT_BYTES_MAX - self.text.len());
        self.text.extend_from_slice(&bytes[..count]);
        if self.text.len() == TEXT_BYTES_MAX {
            self.seal()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.seal()?;
        self.inner.flush()
    }
}

/// Decrypts the records of the other side's [`SecureWriter`]s. Errors if a record is altered, missing or out of order.
pub struct SecureReader<R> {
    inner: R,
    keys: Keys,
    writer: u16,
    count: u64,
    record: Vec<u8>,
    text: Vec<u8>,
    taken: usize,
}

impl<R: Read> SecureReader<R> {
    /// Makes the reading side of a connection with these keys.
    pub fn new(inner: R, keys: Keys) -> Self {
        Self { inner, keys, writer: 0, count: 0, record: vec![0; RECORD_BYTES_MAX], text: Vec::new(), taken: 0 }
    }

    /// Decrypts the next record. Returns false at the end of the stream, which must lie between two records.
    fn open(&mut self) -> io::Result<bool> {
        let mut head = [0; HEAD_BYTES];
        if self.inner.read(&mut head[..1])? == 0 {
            return Ok(false);
        }
        self.inner.read_exact(&mut head[1..])?;
        let count = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let writer = u16::from_le_bytes([head[2], head[3]]);
        if count <= TAG_BYTES || writer < self.writer {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "this is not a record of an encrypted stream"));
        }
        if writer > self.writer {
            (self.writer, self.count) = (writer, 0);
        }
        let record = &mut self.record[..count];
        self.inner.read_exact(record)?;
        let number = u64::from(writer) << NUMBER_BITS | self.count;
        self.text.resize(count - TAG_BYTES, 0);
        let opened = self.keys.0.read_message(number, record, &mut self.text);
        opened.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a record was changed on the way"))?;
        self.count += 1;
        self.taken = 0;
        Ok(true)
    }
}

impl<R: Read> Read for SecureReader<R> {
    fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.text.len() && !self.open()? {
            return Ok(0);
        }
        let count = place.len().min(self.text.len() - self.taken);
        place[..count].copy_from_slice(&self.text[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::net::UnixStream;

    fn meet(one: Secret, other: Secret, greetings: [&'static [u8]; 2]) -> (io::Result<Keys>, io::Result<Keys>) {
        let (mut left, mut right) = UnixStream::pair().unwrap();
        let accepting = std::thread::spawn(move || respond(&mut right, &other, greetings[1]));
        let initiated = initiate(&mut left, &one, greetings[0]);
        drop(left);
        (initiated, accepting.join().unwrap())
    }

    fn pair() -> (Keys, Keys) {
        let secret = Secret::new([7; 32]);
        let (one, other) = meet(secret.clone(), secret, [b"same", b"same"]);
        (one.unwrap(), other.unwrap())
    }

    fn written(keys: Keys, parts: &[Vec<u8>], writer: u16) -> Vec<u8> {
        let mut out = Vec::new();
        let mut sealed = SecureWriter::new(&mut out, keys, writer);
        for part in parts {
            sealed.write_all(part).unwrap();
            sealed.flush().unwrap();
        }
        out
    }

    fn all(keys: Keys, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        SecureReader::new(bytes, keys).read_to_end(&mut text).map(|_| text)
    }

    #[test]
    fn another_secret_or_another_greeting_is_refused() {
        let secret = || Secret::new([7; 32]);
        let (one, other) = meet(secret(), Secret::new([8; 32]), [b"same", b"same"]);
        assert!(one.is_err() && other.is_err());
        let (one, other) = meet(secret(), secret(), [b"this", b"that"]);
        assert!(one.is_err() && other.is_err());
    }

    #[test]
    fn a_second_writer_follows_the_first_and_never_precedes_it() {
        let (keys, others) = pair();
        let first = written(keys.clone(), &[b"first".to_vec()], 0);
        let second = written(keys, &[b"second".to_vec()], 1);
        assert_eq!(all(others.clone(), &[&first[..], &second].concat()).unwrap(), b"firstsecond");
        assert!(all(others.clone(), &[&second[..], &first].concat()).is_err());
        assert!(all(others, &[&first[..], &first].concat()).is_err(), "a repeated record");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn what_goes_in_comes_out_and_nothing_of_it_is_to_be_seen(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..70_000), 0..3)
        ) {
            let (keys, others) = pair();
            let sealed = written(keys, &parts, 0);
            let plain = parts.concat();
            prop_assert!(plain.len() < 64 || !sealed.windows(32).any(|window| window == &plain[..32]));
            prop_assert_eq!(all(others, &sealed).unwrap(), plain);
        }

        #[test]
        fn any_change_is_an_error(at: usize, bit in 0..8, cut: bool) {
            let (keys, others) = pair();
            let mut sealed = written(keys, &[vec![1; 300], vec![2; 20]], 0);
            let at = at % sealed.len();
            if cut { sealed.truncate(at) } else { sealed[at] ^= 1_u8 << bit }
            // A stream may end after a whole record; frames inside the stream detect that it ended too early.
            let early = cut && (at == 0 || at == HEAD_BYTES + 300 + TAG_BYTES);
            prop_assert_eq!(all(others, &sealed).is_ok(), early);
        }

        #[test]
        fn fuzz_handshakes_and_records_of_any_bytes_are_errors(bytes in prop::collection::vec(any::<u8>(), 1..300)) {
            let (_, keys) = pair();
            prop_assert!(all(keys, &bytes).is_err());
            let mut stream = io::Cursor::new(bytes);
            prop_assert!(respond(&mut stream, &Secret::new([7; 32]), b"").is_err());
        }
    }
}
