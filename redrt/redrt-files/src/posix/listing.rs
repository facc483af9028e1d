//! Listings of directories, the same in all replicas of a rank.
//!
//! ```text
//!   leader: read the directory ──▶ entries, by name ──▶ a piece of them: agreed ──▶ records ──▶ readdir, getdents64
//! ```
//! The entries are in the order of their names, and the names of each piece follow those of the piece before. A replica
//! that becomes the leader in the midst of a listing reads the directory again, and continues behind the last agreed
//! name. So no entry comes twice, and no entry that existed all the time is left out.
//!
//! Agreed pieces are kept until the program rewinds or closes the directory. They are in the kernel's format, so that
//! pointers to entries stay valid, and the program can go back to places in the listing.

use std::collections::VecDeque;
use std::ffi::c_int;

/// Length at which a piece ends.
const PIECE_BYTES: usize = 1 << 16;

/// Offset of the name in a record (`struct linux_dirent64`, which is the C library's `struct dirent64`).
const NAME_AT: usize = 19;
const LENGTH_AT: usize = 16;

/// Room for a name in `struct dirent64`. Programs copy the whole structure, for any length of the record.
const NAME_ROOM_BYTES: usize = 256;

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectoryEntry {
    /// Name, without NUL.
    pub name: Vec<u8>,
    pub inode: u64,
    /// Type of the file, a `DT_` constant.
    pub kind: u8,
}

impl DirectoryEntry {
    /// Appends the record to `into`. `position` is that of the next entry.
    fn encode(&self, position: usize, into: &mut Vec<u8>) {
        let length = (NAME_AT + self.name.len() + 1).next_multiple_of(8);
        let end = into.len() + length;
        into.extend(self.inode.to_ne_bytes());
        into.extend((position as u64).to_ne_bytes());
        into.extend((length as u16).to_ne_bytes());
        into.push(self.kind);
        into.extend(&self.name);
        into.resize(end, 0);
    }

    /// Decodes the first entry of records, and returns it with its length in bytes; `None` if the record is damaged.
    fn decode(records: &[u8]) -> Option<(Self, usize)> {
        let length = u16::from_ne_bytes(records.get(LENGTH_AT..LENGTH_AT + 2)?.try_into().ok()?).into();
        let name = records.get(NAME_AT..length)?.split(|byte| *byte == 0).next()?.to_vec();
        let inode = u64::from_ne_bytes(records.get(..8)?.try_into().ok()?);
        Some((Self { name, inode, kind: records[NAME_AT - 1] }, length))
    }

    /// Decodes all entries of records in the kernel's format; `None` if one is damaged.
    pub fn decode_all(mut records: &[u8]) -> Option<Vec<Self>> {
        let mut entries = Vec::new();
        while !records.is_empty() {
            let (entry, length) = Self::decode(records)?;
            records = &records[length..];
            entries.push(entry);
        }
        Some(entries)
    }
}

/// A record of the listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Address of the record; valid until the listing is rewound or dropped.
    pub address: *const u8,
    /// Length in bytes.
    pub length: usize,
}

/// The listing of an open directory.
#[derive(Default, Debug)]
pub struct Listing {
    /// Pieces as they were agreed: nothing in them moves.
    pieces: Vec<Box<[u64]>>,
    /// Piece, offset in it and length of each record.
    records: Vec<(usize, usize, usize)>,
    /// Index of the next record.
    next: usize,
    /// The last agreed name.
    last: Vec<u8>,
    /// True once the last piece has come.
    is_whole: bool,
    /// Entries that this process has read as the leader, and that are not agreed on yet.
    ahead: VecDeque<DirectoryEntry>,
}

impl Listing {
    /// Position in the listing, the value of `telldir`.
    pub fn position(&self) -> usize {
        self.next
    }

    /// Goes to a position that [`position`](Self::position) has returned. Going to the beginning reads the directory
    /// anew.
    pub fn seek(&mut self, position: usize) {
        if position == 0 {
            *self = Self::default();
        } else {
            self.next = position;
        }
    }

    /// The next record, if it is known; `None` if a further piece is needed, or at the end
    /// ([`is_over`](Self::is_over)).
    pub fn peek(&self) -> Option<Record> {
        let (piece, offset, length) = *self.records.get(self.next)?;
        Some(Record { address: self.pieces[piece].as_ptr().cast::<u8>().wrapping_add(offset), length })
    }

    /// Moves behind the next record.
    pub fn advance(&mut self) {
        self.next += 1;
    }

    /// Returns true if no more records come.
    pub fn is_over(&self) -> bool {
        self.is_whole && self.next >= self.records.len()
    }

    /// Makes the next piece, in the leader; `read` reads the directory. Returns the records, and true with the last
    /// ones.
    pub fn make_piece(
        &mut self,
        read: impl FnOnce() -> Result<Vec<DirectoryEntry>, c_int>,
    ) -> Result<(bool, Vec<u8>), c_int> {
        let is_new = |entry: &DirectoryEntry, last: &[u8]| last.is_empty() || *entry.name > *last;
        self.ahead.retain(|entry| is_new(entry, &self.last));
        if self.ahead.is_empty() {
            let mut entries = read()?;
            entries.retain(|entry| is_new(entry, &self.last));
            entries.sort_unstable_by(|left, right| left.name.cmp(&right.name));
            self.ahead = entries.into();
        }
        let mut records = Vec::new();
        let mut count = 0;
        for entry in &self.ahead {
            if records.len() >= PIECE_BYTES {
                break;
            }
            count += 1;
            entry.encode(self.records.len() + count, &mut records);
        }
        Ok((count == self.ahead.len(), records))
    }

    /// Adds an agreed piece. Returns false if it is damaged.
    pub fn take(&mut self, is_last: bool, records: &[u8]) -> bool {
        let Some(entries) = DirectoryEntry::decode_all(records) else { return false };
        if let Some(entry) = entries.last() {
            self.last.clone_from(&entry.name);
        }
        let mut from = 0;
        while let Some((_, length)) = DirectoryEntry::decode(&records[from..]) {
            self.records.push((self.pieces.len(), from, length));
            from += length;
        }
        let mut piece: Vec<u64> = records
            .chunks(8)
            .map(|word| {
                let mut bytes = [0; 8];
                bytes[..word.len()].copy_from_slice(word);
                u64::from_ne_bytes(bytes)
            })
            .collect();
        piece.resize(piece.len() + NAME_ROOM_BYTES / 8, 0);
        self.pieces.push(piece.into());
        self.is_whole = is_last;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> DirectoryEntry {
        DirectoryEntry { name: name.into(), inode: name.len() as u64, kind: libc::DT_REG }
    }

    /// The remaining names of a listing whose pieces are read by `read`.
    fn rest(listing: &mut Listing, read: impl Fn() -> Vec<DirectoryEntry>) -> Vec<String> {
        let mut names = Vec::new();
        loop {
            let Some(record) = listing.peek() else {
                if listing.is_over() {
                    return names;
                }
                let (is_last, records) = listing.make_piece(|| Ok(read())).unwrap();
                assert!(listing.take(is_last, &records));
                continue;
            };
            listing.advance();
            // SAFETY: - valid for reads of its length: a record of the listing, which is not rewound meanwhile.
            let bytes = unsafe { std::slice::from_raw_parts(record.address, record.length) };
            names.push(String::from_utf8(DirectoryEntry::decode(bytes).unwrap().0.name).unwrap());
        }
    }

    #[test]
    fn entries_come_in_the_order_of_their_names() {
        let read = || ["b", "..", "a long name of some file", ".", "A"].map(entry).to_vec();
        let mut listing = Listing::default();
        let all = rest(&mut listing, read);
        assert_eq!(all, [".", "..", "A", "a long name of some file", "b"]);
        listing.seek(3);
        assert_eq!(rest(&mut listing, || unreachable!("it is known")), all[3..]);
        listing.seek(0);
        assert_eq!(rest(&mut listing, || vec![entry("new")]), ["new"]);
        assert_eq!(rest(&mut Listing::default(), Vec::new), [""; 0]);
    }

    #[test]
    fn a_successor_goes_on_behind_the_last_name_that_was_agreed() {
        let name = |number: usize| format!("{number:06}{}", "x".repeat(200));
        let all: Vec<_> = (0..3000).map(|number| entry(&name(number))).collect();
        let (mut leader, mut follower) = (Listing::default(), Listing::default());
        let (is_last, records) = leader.make_piece(|| Ok(all.clone())).unwrap();
        assert!(!is_last && records.len() < PIECE_BYTES + 300);
        assert!(leader.take(is_last, &records) && follower.take(is_last, &records));
        let told = leader.records.len();
        // The former leader has the rest; the follower reads anew, after a removal and a creation.
        let whole = rest(&mut leader, || unreachable!("it has read it all"));
        assert_eq!(whole, all.iter().map(|entry| String::from_utf8_lossy(&entry.name)).collect::<Vec<_>>());
        let mut later: Vec<_> =
            all.iter().rev().filter(|entry| *entry.name != *name(2500).as_bytes()).cloned().collect();
        later.push(entry("000000 is passed"));
        later.push(entry("zzz"));
        let mut expected = [&whole[..2500], &whole[2501..]].concat();
        expected.push("zzz".into());
        assert_eq!(rest(&mut follower, || later.clone()), expected);
        assert!(told > 200);
    }

    #[test]
    fn positions_count_on_over_pieces() {
        let all: Vec<_> = (0..3000).map(|number| entry(&format!("{number:0200}"))).collect();
        let mut listing = Listing::default();
        assert_eq!(rest(&mut listing, || all.clone()).len(), 3000);
        assert!(listing.pieces.len() > 2);
        for (at, (piece, offset, length)) in listing.records.iter().enumerate() {
            assert_eq!((listing.pieces[*piece][offset / 8 + 1], length % 8), (at as u64 + 1, 0));
        }
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let mut records = Vec::new();
        entry("name").encode(1, &mut records);
        assert_eq!(DirectoryEntry::decode_all(&records), Some(vec![entry("name")]));
        assert_eq!(DirectoryEntry::decode_all(&records[..records.len() - 1]), None);
        for length in [0_u16, 7, 18, 4000] {
            let mut wrong = records.clone();
            wrong[LENGTH_AT..LENGTH_AT + 2].copy_from_slice(&length.to_ne_bytes());
            assert!(!Listing::default().take(true, &wrong), "{length}");
        }
    }
}
