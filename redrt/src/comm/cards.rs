//! A few numbers from each member to all.

use crate::coll::gather::allgather;
use crate::comm::Comm;
use crate::error::Result;
use redrt_engine::tasks::block_on;
use redrt_transport::memory::Scratch;

const WORDS: usize = 4;

/// What a member tells the others.
pub(crate) type Card = [u64; WORDS];

/// Every member's card, by rank. All members call it.
pub(crate) fn exchange(comm: &Comm, own: Card) -> Result<Vec<Card>> {
    const BYTES: usize = WORDS * size_of::<u64>();
    let mut scratch = Scratch::new(BYTES * comm.size());
    let all = scratch.region();
    let pieces: Vec<_> = (0..comm.size()).map(|rank| all.part(rank * BYTES, BYTES)).collect();
    pieces[comm.rank as usize].with_bytes_mut(|bytes| {
        for (place, word) in bytes.chunks_exact_mut(size_of::<u64>()).zip(own) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
    });
    block_on(allgather(comm.peers(), None, pieces.clone()))?;
    let card = |bytes: &[u8]| -> Card {
        let mut words = bytes.chunks_exact(size_of::<u64>()).map(|word| word.try_into().map_or(0, u64::from_ne_bytes));
        std::array::from_fn(|_| words.next().unwrap_or_default())
    };
    Ok(pieces.iter().map(|piece| piece.with_bytes(card)).collect())
}
