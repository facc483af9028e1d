//! Barrier by dissemination: in round k each member signals the one 2^k further on.

use super::board::Call;
use super::{Outcome, Peers, board};
use redrt_runtime::mutation::{self, Mutation};
use redrt_transport::memory::Region;

/// Returns once all members have called it.
pub async fn barrier(peers: Peers) -> Outcome {
    if let Some(table) = peers.table.as_deref() {
        return Call::new(table, || peers.clone(), board::Barrier).run().await;
    }
    let size = peers.size();
    let mut distance = 1;
    let rounds_end = if mutation::is_planted(Mutation::BarrierShort) { size.div_ceil(2) } else { size };
    while distance < rounds_end {
        let to = (peers.rank + distance) % size;
        let from = (peers.rank + size - distance) % size;
        peers.exchange(to, Region::empty(), from, Region::empty()).await?;
        distance *= 2;
    }
    Ok(())
}
