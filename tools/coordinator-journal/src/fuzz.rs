//! Arbitrary bytes and damaged journals yield the written records or an error.

use super::frame::{Contents, Unreadable, decode, encode, header};
use damage::damage;
use proptest::collection::vec;
use proptest::prelude::*;

fn journal(records: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = header().to_vec();
    (0..).zip(records).for_each(|(number, record)| encode(record, number, &mut bytes));
    bytes
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        let framed = [&header()[..], &bytes].concat();
        for bytes in [&bytes, &framed] {
            if let Ok(Contents { records, sound_bytes }) = decode(bytes) {
                prop_assert!(!records.is_empty() && sound_bytes <= bytes.len());
            }
        }
    }

    /// The latter where the journal is damaged.
    #[test]
    fn records_are_read_unchanged_or_not_at_all(
        records in vec(vec(any::<u8>(), 0..40), 1..12),
        damage in damage(),
    ) {
        let whole = journal(&records);
        let read = decode(&whole).map(|contents| contents.records.iter().map(|record| record.to_vec()).collect());
        prop_assert_eq!(read, Ok(records.clone()));
        let damaged = damage.done_to(&whole);
        match decode(&damaged) {
            // Records may be missing at the end only.
            Ok(Contents { records: read, .. }) => prop_assert!(read.iter().zip(&records).all(|(one, other)| one == other)),
            Err(Unreadable::Damaged { number }) => prop_assert!(number < records.len() as u64),
            Err(_) => prop_assert!(damaged != whole),
        }
    }
}
