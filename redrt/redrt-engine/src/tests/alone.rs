//! A process that consists of an engine alone.

use crate::Runtime;
use quiesce::{Outcome, Place, Question, StreamId};
use redrt_types::{ProcessIndex, View, World};
use redrt_wire::control::FromAgent;

/// A process with one thread; an abort panics.
pub struct Alone;

impl Runtime for Alone {
    fn report(&self, _: FromAgent) {}

    fn view_changed(&self, _: &World, _: &View, _: &View) {}

    fn abort(&self, _: i32, message: String) -> ! {
        panic!("{message}")
    }

    fn loss_of(&self, _: ProcessIndex, _: &str) -> Option<String> {
        None
    }

    fn label_of_context(&self, context: u64) -> String {
        format!("context {context}")
    }

    fn told_in_context(&self, _: u64) -> Option<String> {
        None
    }

    fn serves(&self, _: u64) -> bool {
        false
    }

    fn call_count(&self) -> u64 {
        0
    }

    fn has_one_thread(&self) -> bool {
        true
    }

    fn place(&self) -> Place {
        Place::NOWHERE
    }

    fn place_of(&self, thread: u64) -> Place {
        Place { thread, ..Place::NOWHERE }
    }

    fn places(&self) -> u64 {
        0
    }

    fn calls_of(&self, _: u64) -> u64 {
        0
    }

    fn untold_order(&self) -> Option<(StreamId, Question, Outcome)> {
        None
    }

    fn ran_ns_of(&self, _: u64) -> u64 {
        0
    }

    fn pulse_of(&self, _: u64) -> u64 {
        0
    }
}
