//! Prefix reductions by recursive doubling, operands in rank order.

use super::reduce::Combine;
use super::{Failure, Outcome, Peers};
use crate::memory::{Region, Scratch};

/// Leaves in `buffer` the combination of `buffer` of all members up to this one.
pub async fn scan(peers: Peers, buffer: Region, combine: &dyn Combine) -> Outcome {
    prefix(peers, buffer, None, combine).await
}

/// Leaves in `result` the combination of `buffer` of all members before this one; untouched on the first. `buffer` is used up.
pub async fn exscan(peers: Peers, buffer: Region, result: Region, combine: &dyn Combine) -> Outcome {
    prefix(peers, buffer, Some(result), combine).await
}

/// `total` is the combination of the members rank - 2^k + 1 ..= rank so far; `buffer` (or `before`) that of all up to this
/// one (or before it).
async fn prefix(peers: Peers, buffer: Region, before: Option<Region>, combine: &dyn Combine) -> Outcome {
    let size = peers.size();
    let mut total_scratch = Scratch::new(buffer.len());
    let mut incoming_scratch = Scratch::new(buffer.len());
    let total = total_scratch.region();
    let incoming = incoming_scratch.region();
    total.copy_from(buffer);
    let join = |left, right| combine.combine(left, right).map_err(Failure::Refused);
    let mut any_before = false;
    let mut distance = 1;
    while distance < size {
        let receive = (peers.rank >= distance).then(|| peers.start_receive(peers.rank - distance, incoming));
        if peers.rank + distance < size {
            peers.send(peers.rank + distance, total).await?;
        }
        if let Some(receive) = receive {
            receive.await?;
            match before {
                Some(before) if any_before => join(incoming, before)?,
                Some(before) => before.copy_from(incoming),
                None => join(incoming, buffer)?,
            }
            any_before = true;
            join(incoming, total)?;
        }
        distance *= 2;
    }
    Ok(())
}
