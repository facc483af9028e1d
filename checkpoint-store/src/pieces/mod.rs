//! Pieces of a host's part of a checkpoint: any K of its K + M pieces give its files back.
//!
//! ```text
//!  files, one behind the other    ┌ data 0 ┬ data 1 ┬ … K ┐   parity by Reed-Solomon
//!  cut into stripes of K blocks ─▶│ block  │ block  │     │ ─▶ M blocks
//!                                 └───┬────┴───┬────┴─────┘
//!  each piece is a file:    header │ block of stripe 0, digest │ block of stripe 1, digest │ …
//! ```
//! Nothing is held whole in memory: [`encode`] and [`decode`] have one stripe at a time. A block whose digest differs,
//! or that is missing, makes its piece count as lost from there on; another takes its place ([`decode`]). Blocks have
//! [`BLOCK_BYTES`], those of the last stripe as few as it needs. Module [`groups`] chooses the hosts of the pieces.
//!
//! The trap: to compute lost blocks costs 0.7 ms a stripe, however short that is. So blocks are large.
//!
//! The code is that of the crate `reed-solomon-simd` (Leopard, over GF(2^16), with AVX2 or SSSE3 where there is).

mod decode;
mod encode;
pub mod groups;
mod header;

pub use decode::{DecodeError, Decoded, Lost, PieceSource, Write, check_piece, decode};
pub use encode::{EncodeError, encode};
pub use header::{Header, HeaderError, PartFile};

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use twox_hash::XxHash3_64;

/// Bytes of a block, but for those of the last stripe.
pub const BLOCK_BYTES: u32 = 1 << 20;
/// Digest behind each block.
const DIGEST_BYTES: usize = 8;
/// Blocks are multiples of this: the unit of the code.
const GRAIN_BYTES: u64 = 64;
/// Largest K + M. Each piece is on a host of its own, and one host reads or writes all pieces of its part at once.
pub const PIECE_COUNT_MAX: u8 = 32;

/// Numbers of pieces of a part: K + M in the text of the level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Code {
    /// Number of data pieces, K: any K pieces give the part back.
    pub data: u8,
    /// Number of parity pieces, M: any M pieces may be lost.
    pub parity: u8,
}

impl Code {
    /// A code with these numbers. `None` if one of them is 0, or there would be more than [`PIECE_COUNT_MAX`] pieces.
    #[must_use]
    pub fn new(data: u8, parity: u8) -> Option<Self> {
        let fits = data > 0 && parity > 0 && data.checked_add(parity).is_some_and(|all| all <= PIECE_COUNT_MAX);
        fits.then_some(Self { data, parity })
    }

    /// Number of all pieces, K + M.
    #[must_use]
    pub fn piece_count(self) -> u8 {
        self.data + self.parity
    }

    /// Parses `K+M`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (data, parity) = text.split_once('+')?;
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        Self::new(number(data)?, number(parity)?)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.data, self.parity)
    }
}

/// Suffix of a piece's file, before its index.
pub const PIECE: &str = "piece-";

/// Path of a piece of the part of `source`.
#[must_use]
pub fn piece_path(directory: &Path, source: u32, index: u8) -> PathBuf {
    directory.join(format!("host-{source}.{PIECE}{index}"))
}

/// Host of the part, and index, of a piece's file. `None` if the name is that of another file.
#[must_use]
pub fn parse_piece(name: &str) -> Option<(u32, u8)> {
    let (host, index) = name.strip_prefix("host-")?.split_once('.')?;
    let (host, index) = (host.parse().ok()?, index.strip_prefix(PIECE)?.parse().ok()?);
    (piece_path(Path::new(""), host, index) == Path::new(name)).then_some((host, index))
}

/// Digest of a block. Its place is part of it, so that no block can be taken for another.
fn block_digest(header: &Header, index: u8, stripe: u64, block: &[u8]) -> [u8; DIGEST_BYTES] {
    let seed = header.stamp ^ (stripe << 8 | u64::from(index));
    XxHash3_64::oneshot_with_seed(seed, block).to_le_bytes()
}

#[cfg(test)]
mod tests;
