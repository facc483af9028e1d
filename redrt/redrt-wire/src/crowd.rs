//! Choice of the connection to drop when too many connect at once. Pure.
//!
//! The oldest of the largest crowd is dropped. A crowd is all guests of one address at the same stage of the handshake.
//! The stage matters because a greeting proves nothing: it may be a recorded one. So a flood of silence or of replays
//! drives out itself.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;

/// A connection that has not proved knowledge of a secret.
#[derive(Clone, Copy, Debug)]
pub struct Guest {
    /// Number, growing from one guest to the next.
    pub number: u64,
    /// Address of its other end.
    pub address: IpAddr,
    /// True once its greeting was answered.
    pub is_answered: bool,
}

/// Number of the guest to drop; `None` without guests.
pub fn superfluous(guests: impl Iterator<Item = Guest>) -> Option<u64> {
    let guests: Vec<_> = guests.collect();
    let mut counts = HashMap::<(bool, IpAddr), usize>::new();
    guests.iter().for_each(|guest| *counts.entry((guest.is_answered, guest.address)).or_default() += 1);
    let order = |guest: &&Guest| {
        let count = counts[&(guest.is_answered, guest.address)];
        (Reverse(count), guest.is_answered, guest.number)
    };
    guests.iter().min_by_key(order).map(|guest| guest.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_is_a_stranger_of_the_largest_crowd() {
        let rank = |number, from: u8, is_answered| Guest { number, address: [10, 0, 0, from].into(), is_answered };
        // Drops the oldest of the largest crowd. Between crowds of one size, a guest without a sound greeting goes
        // first.
        let crowd = [rank(1, 1, true), rank(2, 1, true), rank(3, 2, false), rank(4, 3, false), rank(5, 3, false)];
        assert_eq!(superfluous(crowd.into_iter()), Some(4));
        assert_eq!(superfluous([rank(1, 1, true), rank(2, 2, false)].into_iter()), Some(2));
        assert_eq!(superfluous([rank(1, 1, true), rank(2, 2, true), rank(3, 2, true)].into_iter()), Some(2));
        // A sound greeting may be a recorded one.
        assert_eq!(superfluous([rank(1, 1, true), rank(2, 1, true), rank(3, 2, false)].into_iter()), Some(1));
        assert_eq!(superfluous([rank(1, 1, true), rank(2, 1, true), rank(3, 1, false)].into_iter()), Some(1));
        assert_eq!(superfluous(std::iter::empty()), None);
    }
}
