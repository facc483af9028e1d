//! A thread that makes progress while the program computes, for windows: origins access memory of this process while
//! its program makes no MPI call.
//!
//! It runs only in a world that is not replicated. Memory of replicas must change at the same points of their programs,
//! and these points are MPI calls.

use super::{job, workers};
use redrt_engine as engine;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Time between two looks. Waking the thread for each message would take the processor from the program.
const INTERVAL: Duration = Duration::from_millis(1);

process_local! {
    /// Number of windows that need progress; the thread waits for the first one on the condition variable.
    static WANTED: (Mutex<u32>, Condvar) = (Mutex::new(0), Condvar::new());
}

/// Guard: progress is made for one window until it is dropped.
pub struct Helped(());

/// Makes progress for one more window. `None` in a replicated world, in a program that was not started by redrun, or if
/// no thread can be started: then only MPI calls make progress.
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
