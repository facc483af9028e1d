//! Choice of the connection to drop when too many connect at once. Pure.
//!
//! The oldest of the largest group is dropped. A group is all unauthenticated connections of one address at the same
//! stage of the handshake. The stage matters because a greeting proves nothing: it may be a recorded one. So a flood of
//! silence or of replays drives out itself.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;

/// A connection that has not proved knowledge of a secret.
#[derive(Clone, Copy, Debug)]
pub struct UnauthenticatedConnection {
    /// Number, growing from one unauthenticated connection to the next.
    pub number: u64,
    /// Address of its other end.
    pub address: IpAddr,
    /// True once its greeting was answered.
    pub is_answered: bool,
}

/// Number of the unauthenticated connection to drop; `None` without unauthenticated connections.
pub fn superfluous(all_unauthenticated: impl Iterator<Item = UnauthenticatedConnection>) -> Option<u64> {
    let all_unauthenticated: Vec<_> = all_unauthenticated.collect();
    let mut counts = HashMap::<(bool, IpAddr), usize>::new();
    all_unauthenticated.iter().for_each(|unauthenticated| {
        *counts.entry((unauthenticated.is_answered, unauthenticated.address)).or_default() += 1
    });
    let order = |unauthenticated: &&UnauthenticatedConnection| {
        let count = counts[&(unauthenticated.is_answered, unauthenticated.address)];
        (Reverse(count), unauthenticated.is_answered, unauthenticated.number)
    };
    all_unauthenticated.iter().min_by_key(order).map(|unauthenticated| unauthenticated.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_is_a_stranger_of_the_largest_group() {
        let rank = |number, from: u8, is_answered| UnauthenticatedConnection {
            number,
            address: [10, 0, 0, from].into(),
            is_answered,
        };
        // Drops the oldest of the largest group. Between groups of one size, a unauthenticated connection without a
        // sound greeting goes first.
        let unauthenticated =
            [rank(1, 1, true), rank(2, 1, true), rank(3, 2, false), rank(4, 3, false), rank(5, 3, false)];
        assert_eq!(superfluous(unauthenticated.into_iter()), Some(4));
        assert_eq!(superfluous([rank(1, 1, true), rank(2, 2, false)].into_iter()), Some(2));
        assert_eq!(superfluous([rank(1, 1, true), rank(2, 2, true), rank(3, 2, true)].into_iter()), Some(2));
        // A sound greeting may be a recorded one.
        assert_eq!(superfluous([rank(1, 1, true), rank(2, 1, true), rank(3, 2, false)].into_iter()), Some(1));
        assert_eq!(superfluous([rank(1, 1, true), rank(2, 1, true), rank(3, 1, false)].into_iter()), Some(1));
        assert_eq!(superfluous(std::iter::empty()), None);
    }
}
