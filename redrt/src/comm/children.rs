//! The numbers that a communicator gives to those that are made of it, and how they are used again.
//!
//! A context is a hash of its parent's context and a number. In a replicated world the protocol remembers of each
//! channel how far it came, for replicas that are behind. So that a program which makes and frees communicators for
//! ever does not collect channels, a number is given again when all members have freed what was made with it: the
//! channels of the new communicator are those of the old one, and their messages are numbered on.
//!
//! ```text
//!   next() ──▶ open ──▶ over here ──▶ over at all members ──▶ free ──▶ next()
//!                  MPI_Comm_free     agreed in a later call
//!                                    that makes a communicator
//! ```
//! Members free at different times, and exchange nothing when they do. A call that all members make says for each open
//! number whether it is over, once there are many. That must not depend on timing, since all replicas of a rank must
//! say the same: it is what the program has done, not what has arrived.
//!
//! The trap is a communicator that is freed while others that were made of it, or its requests, are still used. Its
//! contexts, and those derived from them, are in use then. So a number is over when all below it is, and never if the
//! program had requests under way.

use redrt_process::lock;
use std::sync::{Arc, Mutex};

/// As many numbers are given before members agree which are over: a word of bits. Few in simulations, so that short
/// programs get there.
const FEW: usize = if cfg!(any(test, feature = "simulation")) { 2 } else { 64 };

/// What one communicator has given numbers to.
pub struct Children {
    numbers: Mutex<Numbers>,
    /// Where its own number is from.
    origin: Option<Origin>,
}

/// A number that a communicator has, and whose it was.
pub struct Origin {
    pub family: Arc<Children>,
    pub number: u64,
}

#[derive(Default)]
struct Numbers {
    next: u64,
    /// Given, and not known to be over at all members, in the order in which they were given.
    open: Vec<Open>,
    /// Over at all members.
    free: Vec<u64>,
    /// Members agree when this many are open.
    agree_at: usize,
    /// Something was made that has no number here: its contexts are in use for ever, as far as is known.
    has_others: bool,
    /// The communicator itself is freed.
    is_freed: bool,
}

struct Open {
    number: u64,
    is_over: bool,
}

impl Children {
    /// None yet, of a communicator whose own number is from there.
    pub fn new(origin: Option<Origin>) -> Self {
        Self { numbers: Mutex::new(Numbers { agree_at: FEW, ..Numbers::default() }), origin }
    }

    /// A number that is not given again.
    pub fn next(&self) -> u64 {
        let mut numbers = lock(&self.numbers);
        numbers.has_others = true;
        numbers.first_use()
    }

    /// A number that is given again when its communicator is over at all members.
    pub fn lend(self: &Arc<Self>) -> Origin {
        let mut numbers = lock(&self.numbers);
        let number = numbers.free.pop().unwrap_or_else(|| numbers.first_use());
        numbers.open.push(Open { number, is_over: false });
        Origin { family: self.clone(), number }
    }

    /// Something was made that has no number.
    pub fn note_others(&self) {
        lock(&self.numbers).has_others = true;
    }

    /// Whether it matters to anybody that the communicator is over.
    pub fn can_be_over(&self) -> bool {
        self.origin.is_some()
    }

    /// The communicator is freed, with requests under way or without.
    pub fn free(&self, is_busy: bool) {
        let mut numbers = lock(&self.numbers);
        numbers.is_freed = !is_busy;
        let is_over = numbers.is_over();
        drop(numbers);
        if let Some(origin) = self.origin.as_ref().filter(|_| is_over) {
            origin.end();
        }
    }

    /// Which open numbers are over here, as bits, if all members are to agree on that now.
    pub fn due(&self) -> Option<Vec<u64>> {
        let numbers = lock(&self.numbers);
        let is_due = numbers.free.is_empty() && numbers.open.len() >= numbers.agree_at;
        let word = |open: &[Open]| open.iter().rev().fold(0, |word, one| word << 1 | u64::from(one.is_over));
        is_due.then(|| numbers.open.chunks(u64::BITS as usize).map(word).collect())
    }

    /// These are over at all members.
    pub fn take_back(&self, agreed: &[u64]) {
        let mut numbers = lock(&self.numbers);
        let is_agreed = |at: usize| agreed[at / u64::BITS as usize] >> (at % u64::BITS as usize) & 1 == 1;
        let (mut at, mut freed) = (0, Vec::new());
        numbers.open.retain(|open| {
            let goes = is_agreed(at);
            freed.extend(goes.then_some(open.number));
            at += 1;
            !goes
        });
        numbers.free = freed;
        // As many again have to be made before the next time.
        numbers.agree_at = FEW.max(2 * numbers.open.len());
    }
}

impl Numbers {
    fn first_use(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Whether neither the communicator nor what was made of it is used any more.
    fn is_over(&self) -> bool {
        self.is_freed && !self.has_others && self.open.iter().all(|open| open.is_over)
    }
}

impl Origin {
    /// What has the number is over here, or this process is no member of it.
    pub fn end(&self) {
        let mut numbers = lock(&self.family.numbers);
        if let Some(open) = numbers.open.iter_mut().find(|open| open.number == self.number) {
            open.is_over = true;
        }
        let is_over = numbers.is_over();
        drop(numbers);
        if let Some(origin) = self.family.origin.as_ref().filter(|_| is_over) {
            origin.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family() -> Arc<Children> {
        Arc::new(Children::new(None))
    }

    fn child(of: &Arc<Children>) -> Arc<Children> {
        Arc::new(Children::new(Some(of.lend())))
    }

    fn number(of: &Arc<Children>) -> u64 {
        of.origin.as_ref().expect("it has one").number
    }

    #[test]
    fn numbers_are_given_again_when_all_members_have_freed_and_the_count_of_those_open_is_what_lives() {
        let members = [family(), family()];
        let kept = members.each_ref().map(child);
        let mut largest = 0;
        for _ in 0..10_000 {
            let made = members.each_ref().map(child);
            assert_eq!(number(&made[0]), number(&made[1]));
            assert_ne!(number(&made[0]), number(&kept[0]));
            largest = largest.max(number(&made[0]));
            made.iter().for_each(|one| one.free(false));
            let due = members.each_ref().map(|one| one.due());
            if let [Some(one), Some(other)] = due {
                let agreed: Vec<_> = one.iter().zip(&other).map(|(one, other)| one & other).collect();
                members.iter().for_each(|member| member.take_back(&agreed));
            }
        }
        assert!(largest <= 2 * FEW as u64, "{largest}");
    }

    #[test]
    fn what_one_member_still_has_is_not_given_again() {
        let members = [family(), family()];
        let made = members.each_ref().map(child);
        made[0].free(false);
        let _others = members.each_ref().map(child);
        let agreed = members[0].due().expect("there are two")[0] & members[1].due().expect("there are two")[0];
        assert_eq!(agreed, 0);
        members.iter().for_each(|member| member.take_back(&[agreed]));
        assert_eq!(members.each_ref().map(|member| number(&child(member))), [2, 2]);
    }

    #[test]
    fn a_number_is_over_when_all_below_it_is() {
        let world = family();
        let (parent, other) = (child(&world), child(&world));
        let grandchild = child(&parent);
        parent.free(false);
        other.free(true);
        assert_eq!(world.due(), Some(vec![0]));
        grandchild.free(false);
        assert_eq!(world.due(), Some(vec![1]), "the other had requests under way");
    }

    #[test]
    fn what_made_others_without_numbers_is_never_over() {
        let world = family();
        let (one, other) = (child(&world), child(&world));
        one.note_others();
        other.next();
        [one, other].iter().for_each(|child| child.free(false));
        assert_eq!(world.due(), Some(vec![0]));
    }
}
