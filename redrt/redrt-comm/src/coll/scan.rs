//! Prefix reductions by recursive doubling, operands in rank order.

use super::board::Call;
use super::reduce::{Combine, join, table_for};
use super::{Outcome, Peers, board};
use redrt_runtime::mutation::{self, Mutation};
use redrt_transport::memory::{Region, Scratch};

/// Leaves in `buffer` the combination of `buffer` of all members up to this one.
pub async fn scan(peers: Peers, buffer: Region, combine: &dyn Combine) -> Outcome {
    if let Some(table) = table_for(&peers, combine).filter(|_| board::are_few(buffer.len(), peers.size())) {
        let arguments = board::Scan { operand: buffer, result: buffer, combine };
        return Call::new(table, || peers.clone(), arguments).run().await;
    }
    let mut scratch = Scratch::spare(if peers.rank > 0 { buffer.len() } else { 0 });
    let incoming = scratch.region();
    for distance in distances(&peers) {
        shift(&peers, distance, buffer, incoming).await?;
        if peers.rank >= distance + usize::from(mutation::is_planted(Mutation::ScanShort)) {
            join(combine, incoming, buffer)?;
        }
    }
    Ok(())
}

/// Leaves in `result` the combination of `operand` of all members before this one; unchanged at the first member. The
/// two regions must differ.
pub async fn exscan(peers: Peers, operand: Region, result: Region, combine: &dyn Combine) -> Outcome {
    if let Some(table) = table_for(&peers, combine).filter(|_| board::are_few(operand.len(), peers.size())) {
        let arguments = board::Exscan { operand, result, combine };
        return Call::new(table, || peers.clone(), arguments).run().await;
    }
    // `own` is the combination up to this member, for members behind it; `incoming` is that of members before it.
    let is_needed = |distance: usize| peers.rank + distance < peers.size();
    let (of_total, of_incoming) = (peers.rank > 0 && is_needed(2), peers.rank > 1);
    let bytes = operand.len();
    let mut scratch = Scratch::spare((usize::from(of_total) + usize::from(of_incoming)) * bytes);
    let mut parts = (0..).map(|number| scratch.region().part(number * bytes, bytes));
    let mut total = operand;
    let own = if of_total { parts.next() } else { None };
    let incoming = if of_incoming { parts.next() } else { None };
    for distance in distances(&peers) {
        let is_first = distance == 1;
        let into = if is_first { result } else { incoming.unwrap_or(result) };
        shift(&peers, distance, total, into).await?;
        if peers.rank < distance {
            continue;
        }
        if !is_first {
            join(combine, into, result)?;
        }
        if let Some(own) = own.filter(|_| is_needed(2 * distance)) {
            if is_first {
                own.copy_from(operand);
            }
            join(combine, into, own)?;
            total = own;
        }
    }
    Ok(())
}

fn distances(peers: &Peers) -> impl Iterator<Item = usize> + use<> {
    let size = peers.size();
    (0..usize::BITS).map(|bit| 1 << bit).take_while(move |distance| *distance < size)
}

/// Sends to the member `distance` behind this one, and receives from the one `distance` before it, if they exist.
async fn shift(peers: &Peers, distance: usize, out: Region, into: Region) -> Outcome {
    let receive = (peers.rank >= distance).then(|| peers.start_receive(peers.rank - distance, into));
    if peers.rank + distance < peers.size() {
        peers.send(peers.rank + distance, out).await?;
    }
    match receive {
        Some(receive) => receive.await,
        None => Ok(()),
    }
}
