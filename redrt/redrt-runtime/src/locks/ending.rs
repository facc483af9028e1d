//! The end of the order: in `MPI_Finalize`, where replicas have parted, and where threads depend on other processes.

use super::{IS_ON, NOTES, QUESTION, STREAM, order, outcome};
use crate::turns;
use redrt_engine::Engine;
use redrt_wire::event::Parting;
use std::sync::atomic::Ordering;
use thread_order::{Batch, Order};

/// Ends the order: threads run unordered from now on. Called in `MPI_Finalize`, and where replicas have parted.
pub fn finish() {
    if IS_ON.load(Ordering::Acquire) {
        let cell = redrt_engine::cell();
        let mut engine = cell.lock();
        let last = order().as_mut().and_then(Order::end);
        close(&mut engine, last);
        drop(engine);
        cell.wake();
    }
}

/// Takes in that the order of this process is over. A process that decides sends its siblings the `last` batch.
pub(super) fn close(engine: &mut Engine, last: Option<Batch>) {
    if !IS_ON.swap(false, Ordering::AcqRel) {
        return;
    }
    NOTES.is_untold.store(false, Ordering::SeqCst);
    if engine.agree(|sphere| sphere.is_deciding()) {
        // An empty batch means that this process no longer orders its threads.
        for outcome in last.into_iter().chain([Batch::default()]).filter_map(|batch| outcome(&batch)) {
            engine.agree(|sphere| sphere.answer(STREAM, QUESTION, outcome));
        }
        engine.flush();
    }
    // Later batches of the leader no longer put this process behind.
    engine.agree(|sphere| sphere.end_thread(STREAM));
}

/// Ends all order of threads, of the interpreter's too: the program makes a child with which it shares semaphores
/// (`redrt/redrt-preload/src/processes.rs`).
///
/// Each replica comes here at the same operation of its program. A thread of an interpreter has its lock then, so the
/// order of that lock ends at the same point. The order of other locks ends when all operations of the leader before
/// that point are made.
pub(super) fn leave_to_children() {
    turns::finish();
    let cell = redrt_engine::cell();
    let mut engine = cell.lock();
    let is_over = order().as_mut().is_none_or(Order::leave_off);
    engine.agree(|sphere| sphere.report_unordered());
    drop(engine);
    if is_over {
        finish();
    }
    cell.wake();
}

/// Reports how the calling thread and that of the leader have parted, and ends the order.
pub(super) fn part(parting: Parting) {
    let cell = redrt_engine::cell();
    let mut engine = cell.lock();
    if let Some(order) = &mut *order() {
        part_in(&mut engine, order, parting, None);
    }
    drop(engine);
    cell.wake();
}

/// Does the same with both locked. Other threads that wait are to be woken. `ended`: the thread that has parted by its
/// end; otherwise it is the calling one.
pub(super) fn part_in(engine: &mut Engine, order: &mut Order, parting: Parting, ended: Option<u64>) {
    let last = order.end();
    close(engine, last);
    turns::finish_in(engine);
    engine.agree(|sphere| sphere.report_divergence(parting, ended));
}
