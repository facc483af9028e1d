//! Encoding of records; the crate documents the bytes.

use twox_hash::XxHash3_64;

/// Version of the format. Journals of other versions are not read.
pub const VERSION: u32 = 3;
/// Maximum length of a record; longer ones are refused by the writer.
pub const RECORD_BYTES_MAX: usize = 1 << 30;

const MAGIC: [u8; 8] = *b"redrtjnl";
const HEADER_BYTES: usize = 16;
const FRAME_BYTES: usize = 16;

/// Bytes that are not a complete, sound journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unreadable {
    /// The magic bytes are wrong.
    #[error("it is no journal")]
    NoJournal,
    /// The journal was written by another version of redrt.
    #[error("it has version {0}, and this redrt reads version {VERSION}")]
    Version(u32),
    /// The journal ends within its first record.
    #[error("it has no beginning")]
    Empty,
    /// A record differs from the one that was written.
    #[error("record {number} is damaged")]
    Damaged {
        /// Index of the record, from 0.
        number: u64,
    },
}

/// Decoded contents of a journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contents<'a> {
    /// The records; never empty.
    pub records: Vec<&'a [u8]>,
    /// Length of the complete records in bytes. A record that was being written may follow.
    pub sound_bytes: usize,
}

/// The header of a journal.
#[must_use]
pub fn header() -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header
}

fn check_of(length: u32, number: u64) -> u32 {
    XxHash3_64::oneshot_with_seed(number, &length.to_le_bytes()) as u32
}

fn digest_of(record: &[u8], number: u64) -> u64 {
    XxHash3_64::oneshot_with_seed(number, record)
}

/// Appends a record with this number to `out`.
///
/// # Panics
/// When the record is longer than [`RECORD_BYTES_MAX`].
pub fn encode(record: &[u8], number: u64, out: &mut Vec<u8>) {
    assert!(record.len() <= RECORD_BYTES_MAX, "a record of {} bytes", record.len());
    let length = record.len() as u32;
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&check_of(length, number).to_le_bytes());
    out.extend_from_slice(&digest_of(record, number).to_le_bytes());
    out.extend_from_slice(record);
}

/// A record, and the bytes behind it.
type Split<'a> = (&'a [u8], &'a [u8]);

/// Splits off a record. `None` if the bytes end within it.
fn split(bytes: &[u8], number: u64) -> Result<Option<Split<'_>>, Unreadable> {
    let damaged = Unreadable::Damaged { number };
    let Some((frame, rest)) = bytes.split_first_chunk::<FRAME_BYTES>() else { return Ok(None) };
    let [l0, l1, l2, l3, c0, c1, c2, c3, digest @ ..] = *frame;
    let (length, check) = (u32::from_le_bytes([l0, l1, l2, l3]), u32::from_le_bytes([c0, c1, c2, c3]));
    // Without this check, a damaged length would look like an incomplete record, and hide all records behind it.
    if check != check_of(length, number) {
        return Err(damaged);
    }
    let Some((record, rest)) = rest.split_at_checked(length as usize) else { return Ok(None) };
    if u64::from_le_bytes(digest) != digest_of(record, number) {
        return Err(damaged);
    }
    Ok(Some((record, rest)))
}

/// Decodes a journal.
///
/// # Errors
/// When anything but its end is missing or wrong.
pub fn decode(bytes: &[u8]) -> Result<Contents<'_>, Unreadable> {
    let (magic, rest) = bytes.split_first_chunk::<8>().ok_or(Unreadable::NoJournal)?;
    if *magic != MAGIC {
        return Err(Unreadable::NoJournal);
    }
    let (version, rest) = rest.split_first_chunk::<4>().ok_or(Unreadable::Empty)?;
    match u32::from_le_bytes(*version) {
        VERSION => {}
        other => return Err(Unreadable::Version(other)),
    }
    let (reserved, mut rest) = rest.split_first_chunk::<4>().ok_or(Unreadable::Empty)?;
    if *reserved != [0; 4] {
        return Err(Unreadable::NoJournal);
    }
    let mut records = Vec::new();
    while let Some((record, behind)) = split(rest, records.len() as u64)? {
        records.push(record);
        rest = behind;
    }
    if records.is_empty() {
        return Err(Unreadable::Empty);
    }
    Ok(Contents { records, sound_bytes: bytes.len() - rest.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(records: &[&[u8]]) -> Vec<u8> {
        let mut bytes = header().to_vec();
        (0..).zip(records).for_each(|(number, record)| encode(record, number, &mut bytes));
        bytes
    }

    #[test]
    fn a_record_torn_at_any_byte_is_left_out() {
        let records: [&[u8]; 3] = [b"all that was before", b"", b"third"];
        let whole = journal(&records);
        let ends: Vec<_> = (1..=3).map(|count| journal(&records[..count]).len()).collect();
        for end in 0..=whole.len() {
            let read = decode(&whole[..end]);
            match ends.iter().filter(|at| **at <= end).count() {
                0 => assert!(matches!(read, Err(Unreadable::Empty | Unreadable::NoJournal)), "{end}: {read:?}"),
                count => {
                    let sound_bytes = ends[count - 1];
                    assert_eq!(read, Ok(Contents { records: records[..count].to_vec(), sound_bytes }), "{end}");
                }
            }
        }
    }

    #[test]
    fn any_bit_that_flips_within_the_records_is_found() {
        let whole = journal(&[b"before", b"one", b"two"]);
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn records_that_were_lost_repeated_or_exchanged_are_found() {
        let frames: Vec<Vec<u8>> = (0..4u64)
            .map(|number| {
                let mut frame = Vec::new();
                encode(&[7; 5], number, &mut frame);
                frame
            })
            .collect();
        for order in [vec![0, 2], vec![0, 1, 1], vec![1, 0], vec![0, 2, 1, 3]] {
            let bytes: Vec<u8> = header().into_iter().chain(order.iter().flat_map(|at| frames[*at].clone())).collect();
            assert!(matches!(decode(&bytes), Err(Unreadable::Damaged { .. })), "{order:?}");
        }
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = journal(&[b"before"]);
        bytes[8] = 9;
        assert_eq!(decode(&bytes), Err(Unreadable::Version(9)));
        assert!(Unreadable::Version(9).to_string().contains("version 9"));
    }
}
