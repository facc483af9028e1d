//! Waits in condition variables, whose mutex is taken in order again.

use super::cancelling::{Cancels, cancellable};
use super::early::{ACTS, WAITING};
use super::mutexes::{LastOf, last_of, really_lock, really_unlock};
use super::places::Last;
use super::{Act, Caller, Ordered, caller};
use crate::real::next;
use libc::{c_int, pthread_cond_t, pthread_mutex_t};
use std::sync::atomic::{AtomicPtr, Ordering};
use thread_order::Shortcut;

/// Limit on the condition variables in which threads of a leader wait. In a copy, which follows, those threads look
/// again.
const CONDITION_COUNT: usize = 8192;
static CONDITIONS: [AtomicPtr<pthread_cond_t>; CONDITION_COUNT] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; CONDITION_COUNT];

/// Waits in a condition variable: gives the mutex back, and takes it again in its turn. `real`: the call, which returns
/// `timed_out` after a timeout, and does so only if the wait `is_timed`.
pub fn wait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    timed_out: c_int,
    is_timed: bool,
    real: impl FnOnce() -> c_int,
) -> c_int {
    let caller = caller();
    if matches!(caller, Caller::Unordered) {
        return real();
    }
    let wait = Wait { condition, mutex, timed_out, is_timed };
    match last_of(mutex) {
        Some(LastOf::Itself(last)) => wait.perform(caller, &last, real),
        Some(LastOf::Elsewhere(last)) => wait.perform(caller, &last, real),
        None => real(),
    }
}

struct Wait {
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    timed_out: c_int,
    /// True if the wait has a limit.
    is_timed: bool,
}

impl Wait {
    fn perform(&self, caller: Caller, last: &impl Last, real: impl FnOnce() -> c_int) -> c_int {
        let thread = match caller {
            Caller::Unordered => return real(),
            Caller::Ordered(thread) => thread,
            Caller::Early(early) => {
                if let Some(thread) = early.begin(if self.is_timed { ACTS } else { WAITING }) {
                    thread
                } else {
                    let result = self.really_wait(real);
                    return match early.count() {
                        None => result,
                        Some(thread) => self.end(thread, last, result),
                    };
                }
            }
        };
        match thread.counts.shortcut() {
            Shortcut::Unordered => real(),
            Shortcut::Leads => {
                let result = self.really_wait(real);
                self.end(thread, last, result)
            }
            // The siblings' threads were woken when the leader's was.
            Shortcut::Follows | Shortcut::Ask => self.take_again(thread, last),
        }
    }

    /// Waits where signals may come.
    fn really_wait(&self, real: impl FnOnce() -> c_int) -> c_int {
        let place = enter(self.condition);
        let result = cancellable(real);
        if let Some(place) = place {
            place.store(std::ptr::null_mut(), Ordering::Release);
        }
        result
    }

    /// Ends a wait that was made without a decision, as the order wants it now.
    fn end(&self, thread: Ordered, last: &impl Last, result: c_int) -> c_int {
        // With any result it has the mutex, unless the arguments were wrong.
        let takes = result == 0 || result == self.timed_out;
        if thread.made(last, takes, result) {
            return result;
        }
        self.take_again(thread, last)
    }

    /// Gives the mutex back, and takes it in its turn. A thread whose process has become the leader meanwhile is woken
    /// without a reason, as any thread may be: earlier signals had no waiter.
    fn take_again(&self, thread: Ordered, last: &impl Last) -> c_int {
        really_unlock(self.mutex);
        let real = || really_lock(self.mutex);
        let take_back = || {
            really_unlock(self.mutex);
            true
        };
        let act = Act { may_miss: true, cancels: Cancels::WithLock, ..Act::new(real, || _ = real(), take_back) };
        thread.perform(last, &act)
    }
}

fn enter(condition: *mut pthread_cond_t) -> Option<&'static AtomicPtr<pthread_cond_t>> {
    let null = std::ptr::null_mut();
    let is_mine = |place: &&AtomicPtr<pthread_cond_t>| {
        if !place.load(Ordering::Relaxed).is_null() {
            return false;
        }
        let taken = place.compare_exchange(null, condition, Ordering::AcqRel, Ordering::Relaxed);
        taken.is_ok()
    };
    CONDITIONS.iter().find(is_mine)
}

/// Called in a process that is a copy, and follows: threads that wait for a signal look again.
#[unsafe(no_mangle)]
pub extern "C" fn redrt_preload_stir_waiters() {
    for place in &CONDITIONS {
        let condition = place.load(Ordering::Acquire);
        if !condition.is_null() {
            next!(pthread_cond_broadcast(condition => *mut pthread_cond_t) -> c_int, libc::ENOSYS);
        }
    }
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_wait(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int {
    wait(
        condition,
        mutex,
        libc::ETIMEDOUT,
        false,
        || next!(pthread_cond_wait(condition => *mut pthread_cond_t, mutex => *mut pthread_mutex_t) -> c_int, libc::ENOSYS),
    )
}
