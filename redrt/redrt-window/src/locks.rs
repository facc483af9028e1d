//! The lock of a window at one target: its holders, and a queue of origins that wait, first come, first served.

use redrt_runtime::mutation::{self, Mutation};
use std::collections::{BTreeSet, VecDeque};

/// The lock of a window at one target (MPI-5.0 §12.5.3). Origins are ranks in the window's group.
#[derive(Clone, Default, Debug)]
pub struct Locks {
    exclusive: Option<u32>,
    shared: BTreeSet<u32>,
    waiting: VecDeque<(u32, bool)>,
}

impl Locks {
    /// Returns true if the origin waits for the lock.
    pub fn waits(&self, origin: u32) -> bool {
        self.waiting.iter().any(|(other, _)| *other == origin)
    }

    /// Requests the lock for an origin. Returns true if the origin has it at once; else it waits.
    pub fn request(&mut self, origin: u32, exclusive: bool) -> bool {
        if self.waiting.is_empty() && self.is_free_for(exclusive) {
            self.grant(origin, exclusive);
            return true;
        }
        self.waiting.push_back((origin, exclusive));
        false
    }

    /// Releases the origin's lock. Returns the waiting origins that have it now, in order; `None` if the origin did not
    /// have it.
    pub fn release(&mut self, origin: u32) -> Option<Vec<u32>> {
        if self.exclusive == Some(origin) {
            self.exclusive = None;
        } else if !self.shared.remove(&origin) {
            return None;
        }
        let mut granted = Vec::new();
        while let Some((next, exclusive)) = self.waiting.front().copied().filter(|next| self.is_free_for(next.1)) {
            self.waiting.pop_front();
            self.grant(next, exclusive);
            granted.push(next);
        }
        Some(granted)
    }

    fn is_free_for(&self, exclusive: bool) -> bool {
        mutation::is_planted(Mutation::LockIgnored)
            || self.exclusive.is_none() && (!exclusive || self.shared.is_empty())
    }

    fn grant(&mut self, origin: u32, exclusive: bool) {
        if exclusive {
            self.exclusive = Some(origin);
        } else {
            self.shared.insert(origin);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shared_locks_go_together_and_nobody_overtakes() {
        let mut locks = Locks::default();
        assert!(locks.request(0, false) && locks.request(1, false));
        assert!(!locks.request(2, true));
        assert!(!locks.request(3, false), "the one that waits longer comes first");
        assert!(locks.waits(2) && locks.waits(3) && !locks.waits(0));
        assert_eq!(locks.release(0), Some(vec![]));
        assert_eq!(locks.release(1), Some(vec![2]));
        assert_eq!(locks.release(1), None);
        assert!(!locks.request(4, false));
        assert_eq!(locks.release(2), Some(vec![3, 4]));
    }

    proptest! {
        /// In any sequence of requests an exclusive lock is held alone, and no request waits for a lock without a
        /// holder.
        #[test]
        fn an_exclusive_lock_is_held_alone(steps in prop::collection::vec((0u32..6, any::<bool>()), 1..80)) {
            let mut locks = Locks::default();
            let mut holders: Vec<(u32, bool)> = Vec::new();
            let mut wanted: Vec<(u32, bool)> = Vec::new();
            for (origin, exclusive) in steps {
                if let Some(at) = holders.iter().position(|holder| holder.0 == origin) {
                    holders.remove(at);
                    for next in locks.release(origin).unwrap() {
                        let at = wanted.iter().position(|other| other.0 == next).unwrap();
                        holders.push(wanted.remove(at));
                    }
                } else if !locks.waits(origin) {
                    if locks.request(origin, exclusive) {
                        holders.push((origin, exclusive));
                    } else {
                        wanted.push((origin, exclusive));
                    }
                }
                prop_assert!(holders.len() <= 1 || holders.iter().all(|holder| !holder.1));
                prop_assert!(wanted.is_empty() || !holders.is_empty());
            }
        }
    }
}
