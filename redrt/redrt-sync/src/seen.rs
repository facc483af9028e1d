//! Decides if the consumer will see a record that was just published, or must be woken.
//!
//! ```text
//!   producer: publish ── light ── is it polled, and awake?
//!   consumer: "not polled" or "asleep" ── heavy ── look once more
//! ```
//! At least one of the two sees the other's write. A consumer that makes no heavy barrier does not show [`ALERT`], and
//! then the producer makes a full barrier.

use crate::fence::{self, Reach};
use crate::primitive::{AtomicU32, Ordering};

/// State of a consumer that is awake, and makes an ordinary barrier before its last look.
pub const AWAKE: u32 = 0;
/// State of a consumer that waits on its sleep word (futex).
pub const ASLEEP_FUTEX: u32 = 1;
/// State of a consumer that waits in poll, and must be woken through its wake socket.
pub const ASLEEP_POLL: u32 = 2;
/// State of a consumer that is awake, and makes a heavy barrier before its last look.
pub const ALERT: u32 = 3;

/// To be asked by a producer that has just published a record. Returns true if the consumer looks at this place by
/// itself. On false nothing is known, but a full barrier was made: later reads of `polled` and `sleep` can be relied
/// upon.
#[inline]
pub fn is_seen(polled: &AtomicU32, sleep: &AtomicU32) -> bool {
    holds_after_light(|| polled.load(Ordering::Relaxed) != 0 && sleep.load(Ordering::Relaxed) == ALERT)
}

/// To be asked after a post that others look for by themselves while they are awake. Returns true if none of them can
/// be asleep without having seen it. On false a full barrier was made, and the sleepers must be roused.
#[inline]
pub fn are_all_awake<'a>(mut sleeps: impl Iterator<Item = &'a AtomicU32>) -> bool {
    holds_after_light(|| sleeps.all(|sleep| sleep.load(Ordering::Relaxed) == ALERT))
}

/// Returns true if a condition holds behind a light barrier, where there are light ones; on false a full barrier was
/// made.
#[inline]
fn holds_after_light(condition: impl FnOnce() -> bool) -> bool {
    if fence::is_registered() {
        fence::light();
        if condition() {
            return true;
        }
    }
    fence::full();
    false
}

/// The barrier of a consumer between its statement that it goes to sleep and its last look. `alert`: while awake it
/// shows [`ALERT`], and not [`AWAKE`].
#[inline]
pub fn before_last_look(alert: bool) {
    if alert { fence::heavy(Reach::Host) } else { fence::full() }
}

/// State of a consumer while it is awake.
#[must_use]
pub fn awake(alert: bool) -> u32 {
    if alert { ALERT } else { AWAKE }
}

/// Ends a consumer's sleep in its place, and returns the kind of sleep. On [`ASLEEP_FUTEX`] and [`ASLEEP_POLL`] the
/// caller has to wake it, on [`AWAKE`] nobody has to. Any other value was written by a stray pointer, and the kind of
/// sleep is unknown.
#[inline]
pub fn rouse(sleep: &AtomicU32) -> u32 {
    match sleep.load(Ordering::SeqCst) {
        AWAKE | ALERT => AWAKE,
        // It may wake up by itself meanwhile, and its new state must not be overwritten.
        asleep => sleep.compare_exchange(asleep, AWAKE, Ordering::SeqCst, Ordering::SeqCst).unwrap_or(AWAKE),
    }
}

#[cfg(all(test, redrt_loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    #[derive(Default)]
    struct Place {
        record: AtomicU32,
        polled: AtomicU32,
        announced: AtomicU32,
        sleep: AtomicU32,
    }

    fn produce(place: &Place) {
        place.record.store(1, Ordering::Release);
        if is_seen(&place.polled, &place.sleep) {
            return;
        }
        if place.polled.load(Ordering::Relaxed) == 0 {
            place.announced.store(1, Ordering::SeqCst);
        }
        rouse(&place.sleep);
    }

    fn check(alert: bool, consume: fn(&Place, bool)) {
        loom::model(move || {
            let place = Arc::new(Place::default());
            place.polled.store(1, Ordering::Relaxed);
            place.sleep.store(awake(alert), Ordering::Relaxed);
            let theirs = place.clone();
            let producer = thread::spawn(move || produce(&theirs));
            consume(&place, alert);
            producer.join().unwrap();
            let is_asleep = [ASLEEP_FUTEX, ASLEEP_POLL].contains(&place.sleep.load(Ordering::SeqCst));
            assert!(!is_asleep, "asleep, with a record that nobody looks at");
            let is_found = place.record.load(Ordering::SeqCst) == 0
                || place.polled.load(Ordering::SeqCst) == 1
                || place.announced.load(Ordering::SeqCst) == 1;
            assert!(is_found, "a record that nobody looks at");
        });
    }

    /// Falls asleep unless there is a record.
    fn sleep(place: &Place, alert: bool) {
        place.sleep.store(ASLEEP_FUTEX, Ordering::SeqCst);
        before_last_look(alert);
        if place.record.load(Ordering::Acquire) != 0 {
            place.sleep.store(awake(alert), Ordering::SeqCst);
        }
    }

    /// Stops polling this place, unless there is a record.
    fn leave(place: &Place, alert: bool) {
        place.polled.store(0, Ordering::SeqCst);
        before_last_look(alert);
        if place.record.load(Ordering::Acquire) != 0 {
            place.announced.store(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn nobody_sleeps_while_there_is_a_record() {
        check(true, sleep);
        check(false, sleep);
    }

    #[test]
    fn a_place_that_is_not_polled_any_more_is_announced() {
        check(true, leave);
        check(false, leave);
    }

    #[test]
    #[should_panic(expected = "nobody looks at")]
    fn without_its_barrier_a_record_is_lost() {
        check(true, |place, _| {
            place.sleep.store(ASLEEP_FUTEX, Ordering::Relaxed);
            if place.record.load(Ordering::Acquire) != 0 {
                place.sleep.store(ALERT, Ordering::SeqCst);
            }
        });
    }
}
