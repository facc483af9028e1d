//! Check that siblings read the same bytes from a file as their leader (`--verify-reads`).
//!
//! The bytes that a leader reads exist once: a flip between the file and the decision that carries them reaches all
//! replicas of the rank alike, so no later comparison differs. With this option each sibling reads the same bytes
//! itself.
//!
//! ```text
//!   leader    stamp ─ read ─ stamp ──▶ decision: bytes, and the stamp if the file has come to rest
//!   sibling                              ▼        stamp ─ read ─ stamp: the same file? the same bytes?
//! ```
//! The trap: another rank may write between the two readings, which must not be reported. So the decision carries a
//! *stamp* (inode, size, time of the last change), and only siblings that find the same stamp before and after their
//! reading compare. Times of change have the resolution of the kernel's clock tick, so a file that was changed within
//! the last seconds has no stamp.

use redrt_engine as engine;
use redrt_runtime as runtime;
use redrt_runtime::faults::{self, Shown};
use redrt_wire::event::Parting;
use std::borrow::Borrow;
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Minimum age of the last change for a file to count as at rest.
const REST: Duration = Duration::from_secs(2);

/// Identity and state of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    inode: u64,
    size: u64,
    changed_s: u64,
    changed_ns: u64,
}

impl Stamp {
    const BYTES: usize = 32;

    /// Stamp of a regular file; `None` for other files, whose readers may get different bytes.
    fn of(file: &File) -> Option<Self> {
        let facts = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let changed_s = u64::try_from(facts.ctime()).ok()?;
        let changed_ns = u64::try_from(facts.ctime_nsec()).ok()?;
        Some(Self { inode: facts.ino(), size: facts.size(), changed_s, changed_ns })
    }

    fn is_at_rest(self, now: SystemTime) -> bool {
        let changed = UNIX_EPOCH + Duration::from_secs(self.changed_s) + Duration::from_nanos(self.changed_ns);
        now.duration_since(changed).is_ok_and(|age| age >= REST)
    }

    fn encode(self) -> Vec<u8> {
        [self.inode, self.size, self.changed_s, self.changed_ns].map(u64::to_le_bytes).concat()
    }

    /// Decodes a stamp; `None` if the leader had none.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
        let mut next = || words.next();
        let stamp = Self { inode: next()?, size: next()?, changed_s: next()?, changed_ns: next()? };
        (stamp.inode != 0).then_some(stamp)
    }
}

fn is_wanted() -> bool {
    runtime::job().is_some_and(|job| job.welcome.options.verifies_reads)
}

/// Reads, and returns the bytes with the stamp of the file. The stamp is `None` if the file was changed meanwhile or
/// shortly before.
fn read_at_rest<E>(
    file: &File,
    now: SystemTime,
    read: impl FnOnce() -> Result<Vec<u8>, E>,
) -> Result<(Vec<u8>, Option<Stamp>), E> {
    let before = Stamp::of(file);
    let bytes = read()?;
    Ok((bytes, before.filter(|stamp| stamp.is_at_rest(now) && Stamp::of(file) == before)))
}

/// The leader's part: reads from `file`. The result has to pass [`confirmed`] in all replicas.
pub fn read<E>(file: &File, read: impl FnOnce() -> Result<Vec<u8>, E>) -> Result<Vec<u8>, E> {
    if !is_wanted() {
        let mut bytes = read()?;
        faults::after_read(&mut bytes);
        return Ok(bytes);
    }
    let (mut bytes, stamp) = read_at_rest(file, SystemTime::now(), read)?;
    faults::after_read(&mut bytes);
    bytes.extend(stamp.map_or_else(|| vec![0; Stamp::BYTES], Stamp::encode));
    Ok(bytes)
}

/// The bytes of [`read()`] for the program, after the comparison in siblings; see [`compared`].
pub fn confirmed<F: Borrow<File>>(
    bytes: Vec<u8>,
    is_anothers: bool,
    name: impl Display,
    open: impl FnOnce() -> io::Result<F>,
    read: impl FnOnce(&File) -> io::Result<Vec<u8>>,
) -> Vec<u8> {
    let mut bytes = compared(bytes, is_anothers, name, open, read);
    faults::is_falsified(Shown::Read(&mut bytes));
    bytes
}

/// A sibling's part: compares the bytes of [`read()`] with its own reading. A difference is reported; all replicas go
/// on with the leader's bytes. If this replica cannot open the file, nothing is compared.
fn compared<F: Borrow<File>>(
    mut bytes: Vec<u8>,
    is_anothers: bool,
    name: impl Display,
    open: impl FnOnce() -> io::Result<F>,
    read: impl FnOnce(&File) -> io::Result<Vec<u8>>,
) -> Vec<u8> {
    if !is_wanted() {
        return bytes;
    }
    let stamp = Stamp::decode(&bytes.split_off(bytes.len().saturating_sub(Stamp::BYTES)));
    let Some(stamp) = stamp.filter(|_| is_anothers) else { return bytes };
    // Locked, so that no copy is made meanwhile: it would not have the file that is open here.
    let mut engine = engine::cell().lock();
    let own = open().and_then(|file| read_at_rest(file.borrow(), SystemTime::now(), || read(file.borrow())));
    if own.is_ok_and(|(own, found)| found == Some(stamp) && own != bytes) {
        engine.agree(|sphere| sphere.report_divergence(Parting::Read { path: name.to_string() }, None));
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_changed_lately_or_meanwhile_has_no_stamp() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "one").unwrap();
        let file = File::open(&path).unwrap();
        let (now, later) = (SystemTime::now(), SystemTime::now() + 2 * REST);
        let look = || Ok::<_, io::Error>(b"one".to_vec());
        assert_eq!(read_at_rest(&file, now, look).unwrap().1, None);
        let stamp = read_at_rest(&file, later, look).unwrap().1.expect("it is at rest by then");
        assert_eq!(Stamp::decode(&stamp.encode()), Some(stamp));
        let write = || std::fs::write(&path, "longer").map(|()| Vec::new());
        assert_eq!(read_at_rest(&file, later, write).unwrap().1, None);
    }

    #[test]
    fn what_is_no_regular_file_has_no_stamp() {
        assert_eq!(Stamp::of(&File::open("/dev/null").unwrap()), None);
        assert_eq!(Stamp::decode(&[0; Stamp::BYTES]), None);
    }
}
