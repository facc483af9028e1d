//! Digests of the program's memory, taken by all replicas of a rank at the same collective (`--scrub`).
//!
//! ```text
//!   agent thread:  Orders ──▶ WANTED = number of a collective that has not begun
//!   main thread:   each blocking collective: number = ++COLLECTIVES ≥ WANTED? ──▶ digests of pages ──▶ redrun
//! ```
//! Replicas are in the same state at the same call, except for operations in the background: a receive may have its
//! message in one replica and not in another. So memory is read only while the program has no open request, which is
//! true at the same calls in all replicas. Other threads of the program change memory whenever they run, so programs
//! with several threads are not compared.

use crate::{job, threads};
use redrt_abi::program_memory::{self, Disguise};
use redrt_types::VirtualRank;
use redrt_wire::control::FromAgent;
use redrt_wire::scrub::{Answer, Order, PAGE_BYTES, Scrub, Stretch};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use twox_hash::XxHash3_64;

/// A page, in words.
type Page = [[u8; 8]; PAGE_BYTES as usize / 8];

/// Value of [`WANTED`] without an order.
const NONE: u64 = u64::MAX;

process_local! {
    static IS_ON: AtomicBool = AtomicBool::new(false);
    /// Blocking collectives that the main thread has begun.
    static COLLECTIVES: AtomicU64 = AtomicU64::new(0);
    /// Number of the collective at which the order is carried out, or at the next suitable one.
    static WANTED: AtomicU64 = AtomicU64::new(NONE);
    static DISGUISE: Mutex<Disguise> = Mutex::new(Disguise { free_block_mark: 0, pointer_guard: 0 });
    static ORDER: Mutex<Option<(u64, Order)>> = Mutex::new(None);
}

/// Counts collectives from now on.
pub fn begin() {
    *DISGUISE.lock().unwrap_or_else(PoisonError::into_inner) = Disguise::find();
    IS_ON.store(true, Ordering::Release);
}

/// Counts a blocking collective at its begin, and carries out an order that is due. Only collectives of the main thread
/// count.
#[inline]
pub fn at_collective() {
    if IS_ON.load(Ordering::Relaxed) && threads::number() == 0 {
        // Sequentially consistent with `follow`: either the agent sees this collective, or this thread sees the order.
        let number = COLLECTIVES.fetch_add(1, Ordering::SeqCst) + 1;
        let wanted = WANTED.load(Ordering::SeqCst);
        if number >= wanted {
            carry_out(number, wanted);
        }
    }
}

/// Handles a message of `redrun`, in the agent thread.
pub fn follow(message: Scrub, rank: VirtualRank) {
    match message {
        Scrub::Where { round } => answer(round, Answer::Position(COLLECTIVES.load(Ordering::SeqCst))),
        Scrub::Orders { round, orders } => {
            let Some(order) = orders.get(rank.0 as usize).copied().filter(|order| order.collective != NONE) else {
                return;
            };
            let mut ordered = ORDER.lock().unwrap_or_else(PoisonError::into_inner);
            *ordered = Some((round, order));
            WANTED.store(order.collective, Ordering::SeqCst);
            let has_passed = COLLECTIVES.load(Ordering::SeqCst) >= order.collective;
            // Only one of the two threads takes the order.
            if has_passed && take(order.collective) {
                *ordered = None;
                drop(ordered);
                answer(round, Answer::Late);
            }
        }
    }
}

fn take(wanted: u64) -> bool {
    WANTED.compare_exchange(wanted, NONE, Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

#[cold]
fn carry_out(number: u64, wanted: u64) {
    if !redrt_engine::cell().lock().requests.is_at_rest() || !take(wanted) {
        return;
    }
    let ordered = ORDER.lock().unwrap_or_else(PoisonError::into_inner).take();
    let (Some((round, order)), Some(job)) = (ordered, job()) else { return };
    match threads::strangers() {
        Some(0) => {}
        Some(count) => return answer(round, Answer::Unfit(format!("has {count} threads besides the main one"))),
        None => return answer(round, Answer::Unfit("cannot list its threads".into())),
    }
    let (stretches, next) = digests(&order, job.welcome.options.seed);
    answer(round, Answer::Pages { collective: number, stretches, next });
}

/// Digests of the memory of an order, and the address from which the next order continues; 0 at the end of memory.
fn digests(order: &Order, seed: u64) -> (Vec<Stretch>, u64) {
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut left = order.bytes_max / PAGE_BYTES;
    let disguise = *DISGUISE.lock().unwrap_or_else(PoisonError::into_inner);
    for region in program_memory::regions() {
        let start = region.start.max(order.from);
        let pages = region.end.saturating_sub(start) / PAGE_BYTES;
        if pages == 0 {
            continue;
        }
        if left == 0 {
            return (stretches, start);
        }
        let taken = pages.min(left);
        left -= taken;
        let mut stretch = Stretch { start, digests: Vec::with_capacity(taken as usize), plain: Vec::new() };
        for number in 0..taken {
            let (digest, plain) = page_digests(start + number * PAGE_BYTES, seed, disguise);
            stretch.digests.push(digest);
            stretch.plain.extend(plain.map(|plain| (number, plain)));
        }
        stretches.push(stretch);
        if taken < pages {
            return (stretches, start + taken * PAGE_BYTES);
        }
    }
    (stretches, 0)
}

/// Digests of a page, as it is and without the disguises of the C library. No second one if there are none.
fn page_digests(page: u64, seed: u64, disguise: Disguise) -> (u64, Option<u64>) {
    // SAFETY: - readable: a page of the program's static data, heap or a block of its allocator.
    //         - not written to or unmapped meanwhile: the program's only thread is here, and the library's threads use
    //           other memory.
    let page = unsafe { &*(page as *const Page) };
    digests_of(page, seed, disguise)
}

fn digests_of(page: &Page, seed: u64, disguise: Disguise) -> (u64, Option<u64>) {
    // Loops without an early end are vectorized.
    let words = || page.iter().map(|word| u64::from_ne_bytes(*word));
    if words().fold(0, |bits, word| bits | word) == 0 {
        return (0, None);
    }
    let hidden_count = words().filter(|word| disguise.hides(*word)).count();
    let plain = || hash(&page.map(|word| disguise.plain(u64::from_ne_bytes(word)).to_ne_bytes()), seed);
    (hash(page, seed), (hidden_count > 0).then(plain))
}

fn hash(page: &Page, seed: u64) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, page.as_flattened()).max(1)
}

fn answer(round: u64, answer: Answer) {
    if let Some(control) = job().and_then(|job| job.control) {
        // If the daemon is gone, so is the job.
        let _ = control.send(&FromAgent::Scrubbed { round, answer });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_second_digest_where_words_are_disguised() {
        let disguise = Disguise { free_block_mark: 0xfd35_7bc9_1234_5678, pointer_guard: 0 };
        let mut page: Page = [[0; 8]; _];
        assert_eq!(digests_of(&page, 1, disguise), (0, None));
        page[7] = 5_u64.to_ne_bytes();
        let (without, None) = digests_of(&page, 1, disguise) else { panic!("nothing is disguised") };
        page[9] = disguise.free_block_mark.to_ne_bytes();
        let (with, plain) = digests_of(&page, 1, disguise);
        assert!(with != without && plain == Some(without));
        page[9] = (disguise.free_block_mark ^ 1).to_ne_bytes();
        assert_eq!(digests_of(&page, 1, disguise).1, None);
    }
}
