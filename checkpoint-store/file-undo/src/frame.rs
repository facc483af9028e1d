//! Encoding of records in the log.
//!
//! ```text
//!   | mark 4 | length 4 | digest of the length 8 | digest of the body 8 | postcard bytes … |     little-endian
//! ```
//! A process may be killed while it adds a record. Such a *torn* record is skipped: its change was never made, and
//! other processes add records after it. A record with flipped bits must not be skipped: its change was made, and would
//! remain. So a torn record is recognized as the beginning of one, directly followed by the next record or the end.
//! Everything else that is no record counts as damage. The digest of the length distinguishes the two: without it, a
//! record with a flipped length would look torn.

use crate::record::Record;
use std::ops::Range;
use twox_hash::XxHash3_64;

const MARK: [u8; 4] = *b"rUn2";
const HEADER_BYTES: usize = 24;
/// Offset of the end of the length's digest.
const LENGTH_END: usize = 16;
/// Most bytes of a body: a few paths, or the value of an extended attribute.
const BODY_BYTES_MAX: usize = 1 << 18;

/// Encodes a record. `None` if it is too long.
pub fn encode(record: &Record) -> Option<Vec<u8>> {
    let body = postcard::to_stdvec(record).ok().filter(|body| body.len() <= BODY_BYTES_MAX)?;
    let length = (body.len() as u32).to_le_bytes();
    let [of_length, of_body] = [&length[..], &body].map(|bytes| XxHash3_64::oneshot(bytes).to_le_bytes());
    Some([&MARK[..], &length, &of_length, &of_body, &body].concat())
}

/// Content of a part of the log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Decoded {
    /// Records, each with its range of bytes.
    pub records: Vec<(Range<usize>, Record)>,
    /// Ranges that are neither a record nor a torn one.
    pub damaged: Vec<Range<usize>>,
}

/// End of the record at `at`. `None` without a mark, and a length that matches its digest.
fn end_of_record(bytes: &[u8], at: usize) -> Option<usize> {
    let begin = bytes.get(at..at + LENGTH_END)?;
    let length: [u8; 4] = begin[4..8].try_into().ok()?;
    let is_header = begin[..4] == MARK && begin[8..] == XxHash3_64::oneshot(&length).to_le_bytes();
    let length = u32::from_le_bytes(length) as usize;
    (is_header && length <= BODY_BYTES_MAX).then_some(at + HEADER_BYTES + length)
}

fn record_at(bytes: &[u8], at: usize, end: usize) -> Option<Record> {
    let (header, body) = bytes.get(at..end)?.split_at(HEADER_BYTES);
    let is_whole = header[LENGTH_END..] == XxHash3_64::oneshot(body).to_le_bytes();
    postcard::from_bytes(body).ok().filter(|_| is_whole)
}

/// Offsets of marks within a range.
fn marks(bytes: &[u8], within: Range<usize>) -> impl Iterator<Item = usize> {
    within.filter(|at| bytes[*at..].starts_with(&MARK))
}

/// Returns true if `bytes` may be left by a process that was killed before it had written length and digest.
fn is_torn_header(bytes: &[u8]) -> bool {
    let marked = bytes.len().min(MARK.len());
    bytes.len() < LENGTH_END && bytes[..marked] == MARK[..marked]
}

/// Decodes a part of the log.
pub fn decode_all(bytes: &[u8]) -> Decoded {
    let (mut found, mut at) = (Decoded::default(), 0);
    while at < bytes.len() {
        let end = end_of_record(bytes, at);
        if let Some((end, record)) = end.and_then(|end| Some((end, record_at(bytes, at, end)?))) {
            found.records.push((at..end, record));
            at = end;
            continue;
        }
        let (next, is_torn) = match end {
            Some(end) => {
                let next = marks(bytes, at + 1..end.min(bytes.len())).find(|at| end_of_record(bytes, *at).is_some());
                (next.unwrap_or(end.min(bytes.len())), next.is_some() || end > bytes.len())
            }
            None => {
                let next = marks(bytes, at + 1..bytes.len()).next().unwrap_or(bytes.len());
                (next, is_torn_header(&bytes[at..next]))
            }
        };
        if !is_torn {
            found.damaged.push(at..next);
        }
        at = next;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{FileKey, Was};
    use proptest::prelude::*;

    fn name(path: &str) -> Record {
        Record::Name(path.into(), Was::Absent)
    }

    fn records(decoded: &Decoded) -> Vec<Record> {
        decoded.records.iter().map(|(_, record)| record.clone()).collect()
    }

    fn other() -> Record {
        let directory = FileKey { device: 1, inode: 2, birth: (3, 4) };
        Record::Moved { from: "/b".into(), to: "/c".into(), directory }
    }

    #[test]
    fn a_torn_record_is_passed_over() {
        let whole = encode(&name("/a")).unwrap();
        for torn in 0..whole.len() {
            for last in [encode(&other()).unwrap(), Vec::new()] {
                let twice = if torn < MARK.len() { 0 } else { torn };
                let found = decode_all(&[&whole[..], &whole[..twice], &whole[..torn], &last].concat());
                assert_eq!(found.damaged, [], "torn after {torn} bytes");
                let expected = if last.is_empty() { vec![name("/a")] } else { vec![name("/a"), other()] };
                assert_eq!(records(&found), expected, "torn after {torn} bytes");
            }
        }
    }

    #[test]
    fn each_flipped_bit_of_each_record_is_damage() {
        let whole = [name("/a"), other(), name("/d")].map(|record| encode(&record).unwrap()).concat();
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let found = decode_all(&flipped);
            assert_eq!((found.damaged.len(), found.records.len()), (1, 2), "bit {bit}");
            assert!(found.damaged[0].contains(&(bit / 8)), "bit {bit}: {:?}", found.damaged);
        }
    }

    #[test]
    fn bytes_that_were_never_written_are_damage() {
        let record = encode(&name("/a")).unwrap();
        let found = decode_all(&[&record[..], &[0; 100], &record].concat());
        let damaged = record.len()..record.len() + 100;
        assert_eq!((found.damaged.as_slice(), found.records.len()), (&[damaged][..], 2));
    }

    #[test]
    fn what_is_too_long_is_no_record() {
        assert!(encode(&name(&"x".repeat(BODY_BYTES_MAX))).is_none());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0_usize..60) {
            let mut log = encode(&name("/some/where")).unwrap();
            let at = at.min(log.len());
            log.splice(at..at, bytes);
            let _ = decode_all(&log);
            let _ = decode_all(&log[at..]);
        }
    }
}
