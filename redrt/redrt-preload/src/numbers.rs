//! Thread numbers, the same in all replicas: from the parent's number and the order of creation under that parent.

use crate::{real, state};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Number {
    Unknown,
    Known(u64),
}

thread_local! {
    static NUMBER: Cell<Number> = const { Cell::new(Number::Unknown) };
}

/// Number of threads that were made without a call of `pthread_create` by name, in the order of their questions.
static STRANGERS: AtomicU64 = AtomicU64::new(0);

/// Makes the calling thread the main thread.
pub fn adopt_main() {
    NUMBER.set(Number::Known(0));
}

/// The calling thread has this number from now on.
pub fn adopt(number: u64) {
    NUMBER.set(Number::Known(number));
}

/// The calling thread's number.
pub fn number() -> u64 {
    if let Number::Known(number) = NUMBER.get() {
        return number;
    }
    let number = if real::thread_id() == real::process_id() {
        0
    } else {
        state::mix(u64::MAX, STRANGERS.fetch_add(1, Ordering::Relaxed))
    };
    NUMBER.set(Number::Known(number));
    number
}
