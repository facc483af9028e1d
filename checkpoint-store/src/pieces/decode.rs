//! From K pieces to the files of a part, stripe by stripe.
//!
//! Data pieces are read first: where all of them are sound nothing is computed. A piece that cannot be read, is torn or
//! belongs to another encoding is lost, and the next one that is left is read from the same stripe on.

use super::{Code, DIGEST_BYTES, Header, block_digest};
use redrt_wire::checkpoint::Generation;
use reed_solomon_simd::ReedSolomonDecoder;
use std::collections::BTreeMap;
use std::io::{self, Read};

/// Where pieces are read.
pub trait PieceSource {
    /// Opens a piece at a place in its file, in bytes.
    ///
    /// # Errors
    /// If the piece cannot be had. It counts as lost then.
    fn open(&mut self, index: u8, offset: u64) -> io::Result<Box<dyn Read>>;
}

/// A piece that is of no use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// Its index.
    pub index: u8,
    /// The reason.
    pub why: String,
}

/// A part that was decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decoded {
    /// Bytes of the files that were wanted.
    pub bytes: u64,
    /// Pieces that turned out to be lost.
    pub lost: Vec<Lost>,
}

/// Reason why a part cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Fewer than K pieces are left.
    #[error("{left} pieces are left of the part of host {host}, of which {needed} are needed{}", told(lost))]
    TooFew {
        /// Host whose part it is.
        host: u32,
        /// Number of sound pieces.
        left: usize,
        /// K.
        needed: u8,
        /// The others, as far as they were looked at.
        lost: Vec<Lost>,
    },
    /// The part has no file of this name.
    #[error("the part of host {host} has no {name}")]
    NoFile {
        /// Host whose part it is.
        host: u32,
        /// Name of the file.
        name: String,
    },
    /// The files cannot be written.
    #[error("{0}")]
    Write(#[source] io::Error),
}

fn told(lost: &[Lost]) -> String {
    lost.iter().map(|lost| format!("; piece {}: {}", lost.index, lost.why)).collect()
}

/// Pieces of one encoding that can be read.
struct Pieces<'a> {
    /// Header of the encoding; its index has no meaning.
    header: Header,
    source: &'a mut dyn PieceSource,
    /// Readers of K pieces, by index, with the stripe at which each is.
    read: BTreeMap<u8, (Box<dyn Read>, u64)>,
    /// Further ones.
    spare: Vec<u8>,
    lost: Vec<Lost>,
    /// Buffers of blocks: faulting them in anew costs as much as reading them.
    buffers: Vec<Vec<u8>>,
    /// Made when the first block has to be computed.
    decoder: Option<ReedSolomonDecoder>,
}

/// Takes bytes of a file: its number, their place, and the bytes.
pub type Write<'a> = dyn FnMut(usize, u64, &[u8]) -> io::Result<()> + 'a;

/// Decodes the files of `wanted` from pieces of the part of `host`, which are asked for by `indices`. `write` gets the
/// number of a file in `wanted`, a place in it, and bytes that belong there. Files of no bytes are not written.
///
/// # Errors
/// If fewer than K pieces are sound, a wanted file is not in the part, or `write` fails. Files may be incomplete then.
pub fn decode(
    (code, host, generation): (Code, u32, Generation),
    indices: &[u8],
    source: &mut dyn PieceSource,
    wanted: &[&str],
    write: &mut Write<'_>,
) -> Result<Decoded, DecodeError> {
    let mut pieces = Pieces::open((code, host, generation), indices, source)?;
    let header = pieces.header.clone();
    let ranges = ranges(&header, wanted)?;
    let (data, mut stripe_bytes) = (usize::from(code.data), vec![0; header.stripe_bytes() as usize]);
    let mut byte_count = 0;
    for stripe in 0..header.stripe_count() {
        let begin = stripe * header.stripe_bytes();
        let end = (begin + header.stripe_bytes()).min(header.part_bytes());
        let mut overlapping = ranges.iter().filter(|range| range.begin < end && begin < range.end).peekable();
        if overlapping.peek().is_none() {
            continue;
        }
        let block_bytes = header.block_bytes_of(stripe);
        pieces.stripe(stripe, &mut stripe_bytes[..data * block_bytes], block_bytes)?;
        for range in overlapping {
            let (from, to) = (range.begin.max(begin), range.end.min(end));
            let bytes = &stripe_bytes[(from - begin) as usize..(to - begin) as usize];
            write(range.number, from - range.begin, bytes).map_err(DecodeError::Write)?;
            byte_count += bytes.len() as u64;
        }
    }
    Ok(Decoded { bytes: byte_count, lost: pieces.lost })
}

/// Bytes of a wanted file in the part.
struct Range {
    number: usize,
    begin: u64,
    end: u64,
}

fn ranges(header: &Header, wanted: &[&str]) -> Result<Vec<Range>, DecodeError> {
    let range = |(number, name): (usize, &&str)| {
        let at = header.files.iter().position(|file| file.name == **name);
        let at = at.ok_or_else(|| DecodeError::NoFile { host: header.host, name: (*name).to_owned() })?;
        let begin = header.files[..at].iter().map(|file| file.bytes).sum();
        Ok(Range { number, begin, end: begin + header.files[at].bytes })
    };
    wanted.iter().enumerate().map(range).collect()
}

impl<'a> Pieces<'a> {
    /// Opens all pieces, and keeps K of the encoding with most pieces.
    fn open(
        (code, host, generation): (Code, u32, Generation),
        indices: &[u8],
        source: &'a mut dyn PieceSource,
    ) -> Result<Self, DecodeError> {
        let (mut found, mut lost) = (Vec::new(), Vec::new());
        for index in indices.iter().copied() {
            let header = source.open(index, 0).map_err(|error| error.to_string()).and_then(|mut reader| {
                let header = Header::read(&mut *reader).map_err(|error| error.to_string())?;
                let is_it = (header.code, header.index, header.host) == (code, index, host);
                let is_it = is_it && header.generation == generation;
                if is_it { Ok((header, reader)) } else { Err("it is another piece".to_owned()) }
            });
            match header {
                Ok(of_piece) => found.push(of_piece),
                Err(why) => lost.push(Lost { index, why }),
            }
        }
        let count = |header: &Header| found.iter().filter(|(other, _)| is_of_one(header, other)).count();
        let Some(header) = found.iter().map(|(header, _)| header).max_by_key(|header| count(header)).cloned() else {
            return Err(DecodeError::TooFew { host, left: 0, needed: code.data, lost });
        };
        found.sort_by_key(|(header, _)| header.index);
        let (mut read, mut spare) = (BTreeMap::new(), Vec::new());
        for (of_piece, reader) in found {
            let index = of_piece.index;
            if !is_of_one(&header, &of_piece) {
                lost.push(Lost { index, why: "it belongs to another encoding".into() });
            } else if read.len() < usize::from(code.data) {
                read.insert(index, (reader, 0));
            } else {
                spare.push(index);
            }
        }
        if read.len() < usize::from(code.data) {
            return Err(DecodeError::TooFew { host, left: read.len(), needed: code.data, lost });
        }
        // The next one is taken from the end.
        spare.reverse();
        Ok(Self { header, source, read, spare, lost, buffers: Vec::new(), decoder: None })
    }

    /// Reads a stripe's data blocks, or computes those that are lost.
    fn stripe(&mut self, stripe: u64, bytes: &mut [u8], block_bytes: usize) -> Result<(), DecodeError> {
        let data = self.header.code.data;
        let mut blocks: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
        while blocks.len() < usize::from(data) {
            let Some(index) = self.next(&blocks) else {
                let (host, left) = (self.header.host, self.read.len());
                return Err(DecodeError::TooFew { host, left, needed: data, lost: std::mem::take(&mut self.lost) });
            };
            let mut block = self.buffers.pop().unwrap_or_default();
            block.resize(block_bytes, 0);
            match self.block(index, stripe, &mut block) {
                Ok(()) => drop(blocks.insert(index, block)),
                Err(error) => {
                    self.buffers.push(block);
                    self.read.remove(&index);
                    self.lost.push(Lost { index, why: error.to_string() });
                }
            }
        }
        let mut place = |index: u8, block: &[u8]| {
            bytes[usize::from(index) * block_bytes..][..block_bytes].copy_from_slice(block);
        };
        blocks.range(..data).for_each(|(index, block)| place(*index, block));
        if blocks.range(data..).next().is_some() {
            let (whole_bytes, parity) = (self.header.block_bytes as usize, usize::from(self.header.code.parity));
            let decoder = self.decoder.get_or_insert_with(|| {
                let new = ReedSolomonDecoder::new(data.into(), parity, whole_bytes);
                new.expect("so few pieces are supported")
            });
            decoder.reset(data.into(), parity, block_bytes).expect("blocks are multiples of its unit");
            for (index, block) in &blocks {
                let added = match index.checked_sub(data) {
                    None => decoder.add_original_shard((*index).into(), block),
                    Some(index) => decoder.add_recovery_shard(index.into(), block),
                };
                added.expect("each piece has one block of this length");
            }
            let decoded = decoder.decode().expect("it has K blocks");
            decoded.restored_original_iter().for_each(|(index, block)| place(index as u8, block));
        }
        self.buffers.extend(blocks.into_values());
        Ok(())
    }

    /// A piece that is read and not among the blocks of this stripe; else one that is left.
    fn next(&mut self, blocks: &BTreeMap<u8, Vec<u8>>) -> Option<u8> {
        let unread = self.read.keys().find(|index| !blocks.contains_key(index)).copied();
        unread.or_else(|| {
            let index = self.spare.pop()?;
            // Opened at the stripe at which it is read.
            self.read.insert(index, (Box::new(io::empty()), u64::MAX));
            Some(index)
        })
    }

    fn block(&mut self, index: u8, stripe: u64, block: &mut [u8]) -> io::Result<()> {
        let (reader, at) = self.read.get_mut(&index).expect("it was chosen from these");
        if *at != stripe {
            *reader = self.source.open(index, self.header.block_offset(stripe))?;
        }
        *at = stripe + 1;
        read_block(&self.header, (index, stripe), &mut **reader, block)
    }
}

/// Reads a piece to its end, and compares its digests.
///
/// # Errors
/// If it cannot be read, or is torn.
pub fn check_piece(piece: &mut dyn Read) -> io::Result<()> {
    let header = Header::read(piece).map_err(io::Error::other)?;
    let mut block = vec![0; header.block_bytes as usize];
    for stripe in 0..header.stripe_count() {
        read_block(&header, (header.index, stripe), piece, &mut block[..header.block_bytes_of(stripe)])?;
    }
    Ok(())
}

fn read_block(header: &Header, (index, stripe): (u8, u64), input: &mut dyn Read, block: &mut [u8]) -> io::Result<()> {
    let mut digest = [0; DIGEST_BYTES];
    input.read_exact(block)?;
    input.read_exact(&mut digest)?;
    match block_digest(header, index, stripe, block) == digest {
        true => Ok(()),
        false => Err(io::Error::other(format!("it is torn in stripe {stripe}"))),
    }
}

fn is_of_one(header: &Header, other: &Header) -> bool {
    (header.stamp, header.block_bytes, &header.files) == (other.stamp, other.block_bytes, &other.files)
}
