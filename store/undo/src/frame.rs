//! Records as bytes of the log.
//!
//! ```text
//!   | mark 4 | length 4 | digest 8 | postcard bytes … |     little-endian
//! ```
//! A process may be killed while it adds a record: the torn one was never acted upon, and others are added behind it.
//! So what is no record is passed over.

use crate::record::Record;
use std::ops::Range;
use twox_hash::XxHash3_64;

const MARK: [u8; 4] = *b"rUn1";
const HEADER_BYTES: usize = 16;
/// A record has a few paths, or the value of an extended attribute.
const BODY_BYTES_MAX: usize = 1 << 18;

/// A record as it is added; `None` when it is too long for one.
pub fn encode(record: &Record) -> Option<Vec<u8>> {
    let body = postcard::to_stdvec(record).ok().filter(|body| body.len() <= BODY_BYTES_MAX)?;
    let digest = XxHash3_64::oneshot(&body).to_le_bytes();
    Some([&MARK[..], &(body.len() as u32).to_le_bytes(), &digest, &body].concat())
}

fn decode_at(bytes: &[u8], at: usize) -> Option<(Record, usize)> {
    let header = bytes.get(at..at + HEADER_BYTES)?;
    let length = u32::from_le_bytes(header[4..8].try_into().ok()?) as usize;
    if header[..4] != MARK || length > BODY_BYTES_MAX {
        return None;
    }
    let end = at + HEADER_BYTES + length;
    let body = bytes.get(at + HEADER_BYTES..end)?;
    if header[8..] != XxHash3_64::oneshot(body).to_le_bytes() {
        return None;
    }
    Some((postcard::from_bytes(body).ok()?, end))
}

/// The records in a part of the log, and where they are in it.
pub fn decode_all(bytes: &[u8]) -> Vec<(Range<usize>, Record)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at + HEADER_BYTES <= bytes.len() {
        match decode_at(bytes, at) {
            Some((record, end)) => {
                found.push((at..end, record));
                at = end;
            }
            None => at += bytes[at + 1..].iter().position(|byte| *byte == MARK[0]).map_or(bytes.len(), |skip| skip + 1),
        }
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

    #[test]
    fn a_torn_record_is_passed_over() {
        let whole = encode(&name("/a")).unwrap();
        let directory = FileKey { device: 1, inode: 2, birth: (3, 4) };
        let other = Record::Moved { from: "/b".into(), to: "/c".into(), directory };
        for torn in 0..whole.len() {
            let log = [&whole[..], &whole[..torn], &encode(&other).unwrap()].concat();
            let found: Vec<_> = decode_all(&log).into_iter().map(|(_, record)| record).collect();
            assert_eq!(found, [name("/a"), other.clone()], "torn after {torn} bytes");
        }
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
