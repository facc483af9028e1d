//! From the files of a part to its pieces, stripe by stripe.

use super::{Header, block_digest};
use reed_solomon_simd::ReedSolomonEncoder;
use std::io::{self, Read};

/// Reason why a part was not encoded.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The part cannot be read, or is shorter than its files were.
    #[error("Failed to read the part: {0}")]
    Read(#[source] io::Error),
    /// A piece cannot be passed on, and the encoding was given up.
    #[error("Failed to pass a piece on: {0}")]
    Pass(#[source] io::Error),
}

/// Encodes a part. `input` has its files, one behind the other; `pass` gets the bytes of each piece, by index, from its
/// header on. The index in `header` is not used.
///
/// # Errors
/// If the input cannot be read or ends too soon; if `pass` fails.
pub fn encode(
    header: &Header,
    input: &mut dyn Read,
    pass: &mut dyn FnMut(u8, &[u8]) -> io::Result<()>,
) -> Result<(), EncodeError> {
    let code = header.code;
    for index in 0..code.piece_count() {
        pass(index, &Header { index, ..header.clone() }.encode()).map_err(EncodeError::Pass)?;
    }
    let (data, parity) = (usize::from(code.data), usize::from(code.parity));
    let whole_bytes = header.block_bytes as usize;
    let mut stripe_bytes = vec![0; data * whole_bytes];
    let new = ReedSolomonEncoder::new(data, parity, whole_bytes);
    let mut encoder = new.expect("so few pieces are supported");
    let mut left = header.part_bytes();
    for stripe in 0..header.stripe_count() {
        let block_bytes = header.block_bytes_of(stripe);
        let stripe_bytes = &mut stripe_bytes[..data * block_bytes];
        let count = left.min(stripe_bytes.len() as u64) as usize;
        input.read_exact(&mut stripe_bytes[..count]).map_err(EncodeError::Read)?;
        stripe_bytes[count..].fill(0);
        left -= count as u64;
        if block_bytes != whole_bytes {
            encoder.reset(data, parity, block_bytes).expect("blocks are multiples of its unit");
        }
        let mut pass = |index: usize, block: &[u8]| {
            let index = index as u8;
            pass(index, block)?;
            pass(index, &block_digest(header, index, stripe, block))
        };
        for (index, block) in stripe_bytes.chunks_exact(block_bytes).enumerate() {
            encoder.add_original_shard(block).expect("it takes K blocks of this length");
            pass(index, block).map_err(EncodeError::Pass)?;
        }
        let encoded = encoder.encode().expect("it has K blocks");
        for (index, block) in encoded.recovery_iter().enumerate() {
            pass(data + index, block).map_err(EncodeError::Pass)?;
        }
    }
    Ok(())
}
