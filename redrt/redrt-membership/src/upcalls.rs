//! Upcalls of the engine: its calls into the rest of the library.

use quiesce::{Outcome, Place, Question, StreamId};
use redrt_comm::comm;
use redrt_comm::comm::connection;
use redrt_engine::Runtime;
use redrt_runtime::{abort, events, job, threads};
use redrt_types::{ProcessIndex, View, World};
use redrt_window as window;
use redrt_wire::control::FromAgent;
use redrt_wire::event::Event;

/// The process around its engine, as [`Runtime`] of the engine. It has no state of its own.
pub struct Process;

impl Runtime for Process {
    fn report(&self, message: FromAgent) {
        match &message {
            FromAgent::Event(Event::Mismatch(mismatch)) => events::mismatch_found(mismatch),
            FromAgent::Event(Event::Divergence { replica, .. }) => events::paths_parted(*replica),
            FromAgent::Event(Event::Reconnected { peer, .. }) => events::link_restored(*peer),
            _ => {}
        }
        if let Some(control) = job().and_then(|job| job.control) {
            // If the daemon is gone, so is the job.
            let _ = control.send(&message);
        }
    }

    fn view_changed(&self, world: &World, before: &View, after: &View) {
        events::view_changed(world, before, after);
    }

    fn abort(&self, code: i32, message: String) -> ! {
        abort(code, message)
    }

    fn loss_of(&self, process: ProcessIndex, name: &str) -> Option<String> {
        connection::loss_of(process, name)
    }

    fn label_of_context(&self, context: u64) -> String {
        comm::label_of_context(context)
    }

    fn told_in_context(&self, context: u64) -> Option<String> {
        comm::told_in_context(context)
    }

    fn serves(&self, context: u64) -> bool {
        window::serves(context)
    }

    fn call_count(&self) -> u64 {
        threads::call_count()
    }

    fn has_one_thread(&self) -> bool {
        threads::strangers() == Some(0)
    }

    fn place(&self) -> Place {
        threads::place()
    }

    fn place_of(&self, thread: u64) -> Place {
        threads::place_of(thread)
    }

    fn places(&self) -> u64 {
        threads::places()
    }

    fn calls_of(&self, thread: u64) -> u64 {
        threads::calls_of(thread)
    }

    fn untold_order(&self) -> Option<(StreamId, Question, Outcome)> {
        redrt_runtime::locks::untold()
    }

    fn ran_ns_of(&self, thread: u64) -> u64 {
        threads::ran_ns_of(thread)
    }

    fn pulse_of(&self, thread: u64) -> u64 {
        threads::pulse_of(thread)
    }
}
