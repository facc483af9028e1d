//! A thread that makes progress while the program computes, for windows: others reach memory of this process without
//! its taking part.
//!
//! Only in a world that is not replicated. Where there are replicas, their memory must change at the same points of
//! their programs, and these are in MPI calls.

use super::{job, workers};
use redrt_engine as engine;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// How often it looks. Waking it for each message would take the processor from the program.
const INTERVAL: Duration = Duration::from_millis(1);

process_local! {
    /// How many windows want help, and where the thread waits for the first.
    static WANTED: (Mutex<u32>, Condvar) = (Mutex::new(0), Condvar::new());
}

/// A window that is helped until this is dropped.
pub struct Helped(());

/// Helps from now on, where that is of use. `None` where it is not, or no thread can be had: then progress is made by
/// calls.
pub fn help() -> Option<Helped> {
    process_local! {
        static STARTED: OnceLock<bool> = OnceLock::new();
    }
    let is_of_use = job().is_some_and(|job| job.control.is_some() && !job.welcome.world.is_replicated());
    if !is_of_use || !*STARTED.get_or_init(|| workers::spawn("redrt-progress", Box::new(run)).is_ok()) {
        return None;
    }
    engine::cell().share();
    *WANTED.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    WANTED.1.notify_one();
    Some(Helped(()))
}

impl Drop for Helped {
    fn drop(&mut self) {
        *WANTED.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
    }
}

fn run() {
    loop {
        let mut wanted = WANTED.0.lock().unwrap_or_else(PoisonError::into_inner);
        while *wanted == 0 {
            wanted = WANTED.1.wait(wanted).unwrap_or_else(PoisonError::into_inner);
        }
        drop(wanted);
        engine::cell().assist();
        std::thread::sleep(INTERVAL);
    }
}
