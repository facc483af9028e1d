//! Numbers that a communicator gives to its children, the communicators made from it, and the reuse of these numbers.
//!
//! A context is a hash of its parent's context and a number. In a replicated world the protocol keeps the last sequence
//! number of each channel, for replicas that are behind. A program that makes and frees communicators for ever must not
//! accumulate channels. So a number is reused once all members have freed its communicator: the new communicator has
//! the channels of the old one, and their sequence numbers go on.
//!
//! ```text
//!   next() ──▶ open ──▶ over here ──▶ over at all members ──▶ free ──▶ next()
//!                  MPI_Comm_free     agreed in a later call
//!                                    that makes a communicator
//! ```
//! Members free at different times, and exchange no messages then. Once there are many open numbers, a call that makes
//! a communicator exchanges the numbers that are finished at each member. All replicas of a rank must send the same, so
//! the exchange depends on calls of the program only, and not on messages that have arrived.
//!
//! A call that must not wait for others (`MPI_Comm_idup`) sends its numbers as well. The answers are used later: by the
//! next call that may wait, or after some further numbers. Either is the same call at all members.
//!
//! Not all members of a communicator take part in each such call. Members that call together have a series of numbers
//! of their own: they make the same calls in the same order, so each knows the series' open numbers.
//!
//! The trap: a communicator may be freed while its children or its requests are in use, and with them its contexts and
//! those derived from them. So a number is finished when all numbers below it are, in every series, and never if the
//! program had open requests.

use redrt_process::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

/// Number of open numbers at which members agree on the finished ones: one word of bits. Small in simulations, so that
/// short programs reach it.
const FEW: usize = if cfg!(any(test, feature = "simulation")) { 2 } else { 64 };

/// Members that make communicators together, with their calls in one order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Series {
    /// All members, of both groups if there are two.
    All,
    /// All members, for their half of an intercommunicator's context. The numbers of the other group are not known
    /// here: a pair comes again when both groups have found their half finished.
    Halves,
    /// Some members with a tag, perhaps of another group too: a hash of them.
    Group(u64),
}

/// Children of one communicator: the numbers that it has given.
pub struct Children {
    numbers: Mutex<Numbers>,
    /// Origin of the communicator's own number; `None` if the number is not reused.
    origin: Option<Origin>,
}

/// The number of a communicator, with the parent that gave it.
pub struct Origin {
    family: Arc<Children>,
    series: Series,
    number: u64,
}

/// Question on which the members of a series have to agree.
pub struct Agreement {
    /// Number of earlier agreements.
    pub number: u64,
    /// Open numbers that are finished here, as bits in the order of giving.
    pub over: Vec<u64>,
}

#[derive(Default)]
struct Numbers {
    series: BTreeMap<Series, Ledger>,
    /// True if the communicator itself was freed, without open requests.
    is_freed: bool,
}

/// The numbers of a series.
struct Ledger {
    next: u64,
    /// Given numbers that are not known to be finished at all members, in the order of giving.
    open: Vec<Open>,
    /// Numbers that are finished at all members.
    free: Vec<u64>,
    /// Number of open numbers at which members agree.
    agree_at: usize,
    agreement_count: u64,
    /// An agreement that was begun and whose outcome was not used yet.
    told: Option<PendingAgreement>,
}

/// An agreement that was begun in a call that does not wait for it.
struct PendingAgreement {
    outcome: Outcome,
    /// Number of open numbers at which the outcome is used at the latest.
    used_at: usize,
}

/// Open numbers that are finished at all members, as bits; unset until that is known.
pub type Outcome = Arc<OnceLock<Vec<u64>>>;

struct Open {
    number: u64,
    is_over: bool,
}

impl Children {
    /// A record without children, of a communicator whose own number has this origin.
    pub fn new(origin: Option<Origin>) -> Self {
        Self { numbers: Mutex::default(), origin }
    }

    /// Gives a number that is not reused.
    pub fn next(&self, series: Series) -> u64 {
        lock(&self.numbers).ledger(series).first_use()
    }

    /// Gives a number that is reused once its communicator is finished at all members.
    pub fn lend(self: &Arc<Self>, series: Series) -> Origin {
        let mut numbers = lock(&self.numbers);
        let ledger = numbers.ledger(series);
        let number = ledger.free.pop().unwrap_or_else(|| ledger.first_use());
        ledger.open.push(Open { number, is_over: false });
        Origin { family: self.clone(), series, number }
    }

    /// Returns true if the communicator's number is reused once it is finished.
    pub fn can_be_over(&self) -> bool {
        self.origin.is_some()
    }

    /// Records that the communicator is freed. With open requests (`is_busy`) its number is never finished.
    pub fn free(&self, is_busy: bool) {
        let mut numbers = lock(&self.numbers);
        numbers.is_freed = !is_busy;
        let is_over = numbers.is_over();
        drop(numbers);
        if let Some(origin) = self.origin.as_ref().filter(|_| is_over) {
            origin.end();
        }
    }

    /// The question on which members of a series have to agree now; `None` if they need not. In a call that may not
    /// wait for others it is due earlier, while enough free numbers are left until the outcome is used.
    pub fn due(&self, series: Series, may_wait: bool) -> Option<Agreement> {
        let numbers = lock(&self.numbers);
        let ledger = numbers.series.get(&series)?;
        let is_short = ledger.free.len() <= if may_wait { 0 } else { FEW };
        let is_due = ledger.told.is_none() && is_short && ledger.open.len() >= ledger.agree_at;
        let word = |open: &[Open]| open.iter().rev().fold(0, |word, one| word << 1 | u64::from(one.is_over));
        let over = || ledger.open.chunks(u64::BITS as usize).map(word).collect();
        is_due.then(|| Agreement { number: ledger.agreement_count, over: over() })
    }

    /// Records that the due agreement was begun. Returns the place for its outcome; until the outcome is used, no other
    /// agreement is due.
    pub fn begin(&self, series: Series) -> Outcome {
        let mut numbers = lock(&self.numbers);
        let ledger = numbers.ledger(series);
        let outcome = Outcome::default();
        ledger.told = Some(PendingAgreement { outcome: outcome.clone(), used_at: ledger.open.len() + FEW });
        outcome
    }

    /// The outcome that is needed before the next number is given: in a call that may wait for others, or after many
    /// numbers since the agreement was begun.
    pub fn owed(&self, series: Series, may_wait: bool) -> Option<Outcome> {
        let numbers = lock(&self.numbers);
        let ledger = numbers.series.get(&series)?;
        let told = ledger.told.as_ref().filter(|told| may_wait || ledger.open.len() >= told.used_at)?;
        Some(told.outcome.clone())
    }

    /// Takes back the numbers that are finished at all members: one bit for each open number, in the order of giving.
    pub fn take_back(&self, series: Series, agreed: &[u64]) {
        let mut numbers = lock(&self.numbers);
        let ledger = numbers.ledger(series);
        // Numbers given after the question have no bits.
        let word = |at: usize| agreed.get(at / u64::BITS as usize).copied().unwrap_or_default();
        let is_agreed = |at: usize| word(at) >> (at % u64::BITS as usize) & 1 == 1;
        let (mut at, mut freed) = (0, Vec::new());
        ledger.open.retain(|open| {
            let goes = is_agreed(at);
            freed.extend(goes.then_some(open.number));
            at += 1;
            !goes
        });
        ledger.free.append(&mut freed);
        ledger.told = None;
        ledger.agreement_count += 1;
        // The next agreement comes when the open numbers have doubled.
        ledger.agree_at = FEW.max(2 * ledger.open.len());
    }

    /// The hashes of groups that have made communicators.
    pub fn groups(&self) -> Vec<u64> {
        let group = |series: &Series| match series {
            Series::Group(group) => Some(*group),
            Series::All | Series::Halves => None,
        };
        lock(&self.numbers).series.keys().filter_map(group).collect()
    }
}

impl Numbers {
    fn ledger(&mut self, series: Series) -> &mut Ledger {
        self.series.entry(series).or_default()
    }

    /// Returns true if neither the communicator nor its children are used any more.
    fn is_over(&self) -> bool {
        self.is_freed && self.series.values().flat_map(|ledger| &ledger.open).all(|open| open.is_over)
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self { next: 0, open: Vec::new(), free: Vec::new(), agree_at: FEW, agreement_count: 0, told: None }
    }
}

impl Ledger {
    fn first_use(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }
}

impl Origin {
    /// Number that the parent has given.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Marks the number as finished here. Its communicator and all below it are freed, or this process is not a member.
    pub fn end(&self) {
        let mut numbers = lock(&self.family.numbers);
        let open = &mut numbers.ledger(self.series).open;
        if let Some(open) = open.iter_mut().find(|open| open.number == self.number) {
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

    const SERIES: [Series; 3] = [Series::All, Series::Halves, Series::Group(7)];

    fn family() -> Arc<Children> {
        Arc::new(Children::new(None))
    }

    fn child(of: &Arc<Children>, series: Series) -> Arc<Children> {
        Arc::new(Children::new(Some(of.lend(series))))
    }

    fn number(of: &Arc<Children>) -> u64 {
        of.origin.as_ref().expect("it has one").number()
    }

    fn over(of: &Children, series: Series) -> Option<Vec<u64>> {
        of.due(series, true).map(|agreement| agreement.over)
    }

    /// Open numbers are as many as living communicators.
    #[test]
    fn numbers_are_given_again_when_all_members_have_freed() {
        for series in SERIES {
            let members = [family(), family()];
            let kept = members.each_ref().map(|member| child(member, series));
            let (mut largest, mut agreements) = (0, 0);
            for _ in 0..10_000 {
                let made = members.each_ref().map(|member| child(member, series));
                assert_eq!(number(&made[0]), number(&made[1]));
                assert_ne!(number(&made[0]), number(&kept[0]));
                largest = largest.max(number(&made[0]));
                made.iter().for_each(|one| one.free(false));
                let due = members.each_ref().map(|one| one.due(series, true));
                if let [Some(one), Some(other)] = due {
                    assert_eq!((one.number, other.number), (agreements, agreements));
                    agreements += 1;
                    let agreed: Vec<_> = one.over.iter().zip(&other.over).map(|(one, other)| one & other).collect();
                    members.iter().for_each(|member| member.take_back(series, &agreed));
                }
            }
            assert!(largest <= 2 * FEW as u64, "{largest}");
        }
    }

    /// The largest number that is given among members that never wait for each other, and that make `row` communicators
    /// at a time and then free them all.
    fn largest_of_rows(row: usize) -> u64 {
        let members = [family(), family()];
        let (mut largest, mut rows) = (0, members.each_ref().map(|_| Vec::new()));
        for number_of_call in 0..10_000 {
            for (member, row) in members.iter().zip(&mut rows) {
                row.push(child(member, Series::All));
            }
            assert_eq!(number(&rows[0][rows[0].len() - 1]), number(&rows[1][rows[1].len() - 1]));
            largest = largest.max(number(&rows[0][rows[0].len() - 1]));
            for member in &members {
                if let Some(outcome) = member.owed(Series::All, false) {
                    member.take_back(Series::All, outcome.get().expect("it came long ago"));
                }
            }
            let due = members.each_ref().map(|one| one.due(Series::All, false));
            if let [Some(one), Some(other)] = due {
                let agreed: Vec<_> = one.over.iter().zip(&other.over).map(|(one, other)| one & other).collect();
                members.iter().for_each(|member| member.begin(Series::All).set(agreed.clone()).expect("it is new"));
                assert!(members.iter().all(|member| member.due(Series::All, false).is_none()), "nothing else is due");
            }
            if number_of_call % row == row - 1 {
                rows.iter_mut().flat_map(|row| row.drain(..)).for_each(|one| one.free(false));
            }
        }
        largest
    }

    #[test]
    fn numbers_are_given_again_by_calls_that_wait_for_nobody() {
        for row in [1, 2, 3, 10, 200] {
            let (largest, bound) = (largest_of_rows(row), 4 * (FEW + row) as u64);
            assert!(largest <= bound, "{largest}, {bound} in rows of {row}");
        }
    }

    #[test]
    fn a_call_that_may_wait_uses_what_was_begun_before_it() {
        let world = family();
        let made: Vec<_> = (0..FEW).map(|_| child(&world, Series::All)).collect();
        let over = world.due(Series::All, false).expect("there are few").over;
        world.begin(Series::All).set(over).expect("it is new");
        assert!(world.owed(Series::All, false).is_none() && world.owed(Series::All, true).is_some());
        made.iter().for_each(|one| one.free(false));
        world.take_back(Series::All, &[0]);
        assert!(world.owed(Series::All, true).is_none());
    }

    #[test]
    fn what_one_member_still_has_is_not_given_again() {
        for series in SERIES {
            let members = [family(), family()];
            let made = members.each_ref().map(|member| child(member, series));
            made[0].free(false);
            let _others = members.each_ref().map(|member| child(member, series));
            let said = members.each_ref().map(|member| over(member, series).expect("there are two")[0]);
            assert_eq!(said[0] & said[1], 0);
            members.iter().for_each(|member| member.take_back(series, &[0]));
            assert_eq!(members.each_ref().map(|member| number(&child(member, series))), [2, 2]);
        }
    }

    #[test]
    fn a_number_is_over_when_all_below_it_is_in_every_series() {
        for series in SERIES {
            let world = family();
            let (parent, other) = (child(&world, Series::All), child(&world, Series::All));
            let grandchild = child(&parent, series);
            parent.free(false);
            other.free(true);
            assert_eq!(over(&world, Series::All), Some(vec![0]));
            grandchild.free(false);
            assert_eq!(over(&world, Series::All), Some(vec![1]), "the other had requests under way");
        }
    }

    #[test]
    fn series_are_apart() {
        let world = family();
        let made = SERIES.map(|series| child(&world, series));
        assert_eq!(made.each_ref().map(number), [0; 3]);
        made[2].free(false);
        let _more = SERIES.map(|series| child(&world, series));
        assert_eq!(SERIES.map(|series| over(&world, series)), [Some(vec![0]), Some(vec![0]), Some(vec![1])]);
        assert_eq!(world.groups(), [7]);
        assert!(world.due(Series::Group(8), true).is_none());
    }
}
