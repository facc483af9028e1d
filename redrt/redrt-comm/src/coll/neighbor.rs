//! Messages between neighbours of a topology.

use super::{Outcome, Peers, all};
use redrt_transport::memory::Region;

/// Sends each piece of `out` to its member, and receives each piece of `into` from its member. The k-th message from
/// one member to another goes into the k-th place for it: both sides list them in the same order.
pub async fn exchange(peers: Peers, out: Vec<(usize, Region)>, into: Vec<(usize, Region)>) -> Outcome {
    let mut steps: Vec<_> = into.into_iter().map(|(from, piece)| peers.start_receive(from, piece)).collect();
    steps.extend(out.into_iter().map(|(to, piece)| peers.start_send(to, piece)));
    all(steps).await
}
