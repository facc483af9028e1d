//! Exchange of a few numbers between all members.

use crate::coll::gather::allgather;
use crate::coll::{Outcome, Peers};
use crate::comm::Comm;
use redrt_abi::error::Result;
use redrt_engine::tasks::block_on;
use redrt_transport::memory::Scratch;

/// Words of one member for the others, the same number at all members.
pub type Card<const WORDS: usize = 4> = [u64; WORDS];

/// Exchanges cards. Returns every member's card, by rank. Collective.
pub fn exchange<const WORDS: usize>(comm: &Comm, own: Card<WORDS>) -> Result<Vec<Card<WORDS>>> {
    Ok(block_on(exchange_among(comm.peers(), own))?)
}

/// Exchanges cards among these members.
pub(crate) async fn exchange_among<const WORDS: usize>(peers: Peers, own: Card<WORDS>) -> Outcome<Vec<Card<WORDS>>> {
    let bytes = size_of_val(&own);
    let mut scratch = Scratch::new(bytes * peers.size());
    let all = scratch.region();
    let pieces: Vec<_> = (0..peers.size()).map(|rank| all.part(rank * bytes, bytes)).collect();
    pieces[peers.rank].with_bytes_mut(|bytes| {
        for (place, word) in bytes.chunks_exact_mut(size_of::<u64>()).zip(own) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
    });
    allgather(peers, None, pieces.clone()).await?;
    let card = |bytes: &[u8]| -> Card<WORDS> {
        let mut words = bytes.chunks_exact(size_of::<u64>()).map(|word| word.try_into().map_or(0, u64::from_ne_bytes));
        std::array::from_fn(|_| words.next().unwrap_or_default())
    };
    Ok(pieces.iter().map(|piece| piece.with_bytes(card)).collect())
}
