//! Encryption of files on disks that others may read.
//!
//! ```text
//!  0            8           40            56
//!  │ "REDRTSE1" │ salt (32) │ check (16)  │ records: 0..4 length of the text, the text, its tag (16)
//! ```
//! ChaCha20-Poly1305 with a key for each file: BLAKE3 of the user's key, a random salt and the file's name, so that no
//! file of a checkpoint can replace another one. The nonce of a record is its number. The check distinguishes a wrong
//! key from a damaged file before any content is used.
//!
//! The trap: a file truncated between two records looks complete. All formats written here mark their own end, so their
//! readers detect that. `unseal` is for short files of one record.

use chacha20poly1305::aead::AeadInPlace;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit, Nonce, Tag};
use redrt_wire::secret::Secret;
use std::io::{self, Read, Write};

/// First bytes of an encrypted file.
pub(crate) const MAGIC: [u8; 8] = *b"REDRTSE1";
const SALT_BYTES: usize = 32;
const CHECK_BYTES: usize = 16;
const TAG_BYTES: usize = 16;
const TEXT_BYTES_MAX: usize = 1 << 18;
/// Name under which a key is sealed for the daemons.
const CARRIED: &str = "key of checkpoints";
/// Name under which access to the object store is sealed for the daemons.
const CARRIED_ACCESS: &str = "access to checkpoints";

/// Reason why a file cannot be decrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SealError {
    /// The file was encrypted with another key.
    #[error("it is encrypted with another key than the one that was named")]
    OtherKey,
    /// A record was changed, or belongs to another file or place.
    #[error("it is encrypted, and a part of it was changed or is that of another file")]
    Damaged,
}

impl From<SealError> for io::Error {
    fn from(error: SealError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// Derives the cipher of one file, and its check.
fn of_file(key: &Secret, salt: &[u8; SALT_BYTES], name: &str) -> (ChaCha20Poly1305, [u8; CHECK_BYTES]) {
    let salted = Secret::new(*blake3::keyed_hash(key.key(), salt).as_bytes());
    let contents = salted.derive("redrt contents of a file of a checkpoint");
    let own = blake3::keyed_hash(contents.key(), name.as_bytes());
    let check = salted.derive("redrt check of the key of a checkpoint");
    let check = *check.key().first_chunk().expect("it has 32 bytes");
    (ChaCha20Poly1305::new(own.as_bytes().into()), check)
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes.into()
}

/// Encrypts everything written. Reading needs the same key and the same name.
pub struct SealedWriter<W> {
    inner: W,
    cipher: ChaCha20Poly1305,
    count: u64,
    text: Vec<u8>,
}

impl<W: Write> SealedWriter<W> {
    /// Begins a file of this name.
    ///
    /// # Errors
    /// If there are no random bytes, or `inner` fails.
    pub fn new(mut inner: W, key: &Secret, name: &str) -> io::Result<Self> {
        let salt = *Secret::generate()?.key();
        let (cipher, check) = of_file(key, &salt, name);
        for part in [&MAGIC[..], &salt, &check] {
            inner.write_all(part)?;
        }
        Ok(Self { inner, cipher, count: 0, text: Vec::with_capacity(TEXT_BYTES_MAX) })
    }

    fn seal(&mut self) -> io::Result<()> {
        if self.text.is_empty() {
            return Ok(());
        }
        let sealed = self.cipher.encrypt_in_place_detached(&nonce(self.count), &[], &mut self.text);
        let tag = sealed.expect("records are far shorter than the cipher's limit");
        self.count += 1;
        self.inner.write_all(&(self.text.len() as u32).to_le_bytes())?;
        self.inner.write_all(&self.text)?;
        self.inner.write_all(&tag)?;
        self.text.clear();
        Ok(())
    }
}

impl<W: Write> Write for SealedWriter<W> {
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

/// Decrypts a file that [`SealedWriter`] has written.
pub struct SealedReader<R> {
    inner: R,
    cipher: ChaCha20Poly1305,
    count: u64,
    text: Vec<u8>,
    taken: usize,
}

impl<R: Read> SealedReader<R> {
    /// Begins to read a file of this name. The magic must have been read already.
    ///
    /// # Errors
    /// [`SealError::OtherKey`], or if `inner` cannot be read.
    pub fn new(mut inner: R, key: &Secret, name: &str) -> io::Result<Self> {
        let (mut salt, mut check) = ([0; SALT_BYTES], [0; CHECK_BYTES]);
        inner.read_exact(&mut salt)?;
        inner.read_exact(&mut check)?;
        let (cipher, own) = of_file(key, &salt, name);
        if own != check {
            return Err(SealError::OtherKey.into());
        }
        Ok(Self { inner, cipher, count: 0, text: Vec::new(), taken: 0 })
    }

    /// Decrypts the next record. Returns false at the end of the file, which must lie between two records.
    fn open(&mut self) -> io::Result<bool> {
        let mut head = [0; 4];
        if self.inner.read(&mut head[..1])? == 0 {
            return Ok(false);
        }
        self.inner.read_exact(&mut head[1..])?;
        let count = u32::from_le_bytes(head) as usize;
        if count == 0 || count > TEXT_BYTES_MAX {
            return Err(SealError::Damaged.into());
        }
        self.text.resize(count, 0);
        // No text is available until the record is authenticated.
        self.taken = count;
        self.inner.read_exact(&mut self.text)?;
        let mut tag = [0; TAG_BYTES];
        self.inner.read_exact(&mut tag)?;
        let opened =
            self.cipher.decrypt_in_place_detached(&nonce(self.count), &[], &mut self.text, Tag::from_slice(&tag));
        opened.map_err(|_| SealError::Damaged)?;
        self.count += 1;
        self.taken = 0;
        Ok(true)
    }
}

impl<R: Read> Read for SealedReader<R> {
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

/// Encrypts a short file at once.
///
/// # Errors
/// If there are no random bytes.
pub(crate) fn seal(text: &[u8], key: &Secret, name: &str) -> io::Result<Vec<u8>> {
    let mut sealed = Vec::new();
    let mut writer = SealedWriter::new(&mut sealed, key, name)?;
    writer.write_all(text)?;
    writer.flush()?;
    Ok(sealed)
}

/// Decrypts a short file at once; `bytes` follow the magic.
pub(crate) fn unseal(bytes: &[u8], key: &Secret, name: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    SealedReader::new(bytes, key, name)?.read_to_end(&mut text)?;
    Ok(text)
}

/// Seals a checkpoint key for the way to the daemons: connections to them may be unencrypted, and all ends know the
/// job's secret.
///
/// # Errors
/// If there are no random bytes.
pub fn carry(key: &Secret, job_secret: &Secret) -> io::Result<Vec<u8>> {
    seal(key.key(), &of_carrying(job_secret), CARRIED)
}

/// Opens a key sealed by [`carry`].
///
/// # Errors
/// If it was sealed with another secret, or was changed.
pub fn carried(bytes: &[u8], job_secret: &Secret) -> io::Result<Secret> {
    let rest = bytes.strip_prefix(&MAGIC).ok_or(SealError::Damaged)?;
    let key = unseal(rest, &of_carrying(job_secret), CARRIED)?;
    Ok(Secret::new(key.try_into().map_err(|_| SealError::Damaged)?))
}

/// Seals access to the object store, including credentials, for the way to the daemons.
///
/// # Errors
/// If there are no random bytes.
pub fn carry_access(access: &[u8], job_secret: &Secret) -> io::Result<Vec<u8>> {
    seal(access, &of_carrying(job_secret), CARRIED_ACCESS)
}

/// Opens access sealed by [`carry_access`].
///
/// # Errors
/// If it was sealed with another secret, or was changed.
pub fn carried_access(bytes: &[u8], job_secret: &Secret) -> io::Result<Vec<u8>> {
    let rest = bytes.strip_prefix(&MAGIC).ok_or(SealError::Damaged)?;
    unseal(rest, &of_carrying(job_secret), CARRIED_ACCESS)
}

fn of_carrying(job_secret: &Secret) -> Secret {
    job_secret.derive("redrt keys of checkpoints on their way")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(byte: u8) -> Secret {
        Secret::new([byte; 32])
    }

    fn all(bytes: &[u8], key: &Secret, name: &str) -> io::Result<Vec<u8>> {
        let rest = bytes.strip_prefix(&MAGIC).ok_or(SealError::Damaged)?;
        unseal(rest, key, name)
    }

    fn why(result: io::Result<Vec<u8>>) -> Option<SealError> {
        result.unwrap_err().downcast().ok()
    }

    #[test]
    fn another_key_and_another_file_are_told_apart() {
        let sealed = seal(b"text", &key(1), "0.image").unwrap();
        assert_eq!(all(&sealed, &key(1), "0.image").unwrap(), b"text");
        assert_eq!(why(all(&sealed, &key(2), "0.image")), Some(SealError::OtherKey));
        assert_eq!(why(all(&sealed, &key(1), "1.image")), Some(SealError::Damaged));
        assert_ne!(seal(b"text", &key(1), "0.image").unwrap(), sealed);
    }

    #[test]
    fn a_key_arrives_where_the_secret_of_the_job_is_known() {
        let sent = carry(&key(7), &key(1)).unwrap();
        assert!(carried(&sent, &key(1)).unwrap() == key(7));
        assert!(carried(&sent, &key(2)).is_err());
        let access = carry_access(key(7).key(), &key(1)).unwrap();
        assert!(carried_access(&access, &key(1)).unwrap() == key(7).key() && carried_access(&access, &key(2)).is_err());
        // A key and an access cannot be confused.
        assert!(carried(&access, &key(1)).is_err() && carried_access(&sent, &key(1)).is_err());
        assert!(carried(&seal(b"short", &of_carrying(&key(1)), CARRIED).unwrap(), &key(1)).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn what_goes_in_comes_out_and_nothing_of_it_is_to_be_seen(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300_000), 0..3)
        ) {
            let mut sealed = Vec::new();
            let mut writer = SealedWriter::new(&mut sealed, &key(1), "name").unwrap();
            for part in &parts {
                writer.write_all(part).unwrap();
                writer.flush().unwrap();
            }
            let plain = parts.concat();
            prop_assert!(plain.len() < 64 || !sealed.windows(32).any(|window| window == &plain[..32]));
            prop_assert_eq!(all(&sealed, &key(1), "name").unwrap(), plain);
        }

        #[test]
        fn any_change_is_an_error(at: usize, bit in 0..8, cut: bool) {
            let mut sealed = Vec::new();
            let mut writer = SealedWriter::new(&mut sealed, &key(1), "name").unwrap();
            for part in [vec![1; 300], vec![2; 20]] {
                writer.write_all(&part).unwrap();
                writer.flush().unwrap();
            }
            let first = MAGIC.len() + SALT_BYTES + CHECK_BYTES;
            let at = at % sealed.len();
            if cut { sealed.truncate(at) } else { sealed[at] ^= 1_u8 << bit }
            // A file may end after a whole record; its content detects that it ended too early.
            let is_early = cut && (at == first || at == first + 4 + 300 + TAG_BYTES);
            prop_assert_eq!(all(&sealed, &key(1), "name").is_ok(), is_early);
        }

        #[test]
        fn fuzz_sealed_files_of_any_bytes_are_errors(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(unseal(&bytes, &key(1), "name").is_err());
            prop_assert!(carried(&bytes, &key(1)).is_err());
        }
    }
}
