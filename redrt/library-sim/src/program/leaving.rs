//! A program that leaves the path of its siblings: at one MPI call it makes an additional call or omits one, or an
//! outcome is falsified.

use super::mpi::{self, mpi};
use crate::world;
use redrt::exports::call_iprobe;
use redrt_abi::handle::CommHandle;
use redrt_abi::phase;
use redrt_abi::{MPI_ANY_SOURCE, MPI_ANY_TAG, Status};
use redrt_runtime::decide;
use redrt_runtime::{job, threads};
use redrt_types::ProcessIndex;
use redrt_wire::fault::ProcessFault;
use simulation_kit::Random;
use std::sync::{Mutex, PoisonError};

/// How a program leaves the path of its siblings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Departure {
    /// An outcome is falsified: a test, a probe, or a clock.
    Falsified,
    /// It reads a clock; its siblings do not.
    Clock,
    /// It probes for a message.
    Probe,
    /// It sends an additional message to this rank.
    Send(usize),
    /// It makes an additional change outside.
    Change,
    /// It omits a reading of a clock, a send, or a change outside.
    Less,
}

/// The process that leaves, and how.
#[derive(Clone, Copy, Debug)]
pub struct Leaves {
    pub process: ProcessIndex,
    call: u64,
    /// How its program leaves.
    pub departure: Departure,
}

process_local! {
    /// Number of calls before the departure, and its kind.
    static PLANNED: Mutex<Option<(u64, Departure)>> = Mutex::new(None);
}

/// No program sends with this tag.
const STRAY_TAG: i32 = 99;
static STRAY_WORDS: [u64; 3] = [1, 2, 3];

impl Leaves {
    /// Draws one of `process_count` processes and its departure, in a job of `rank_count` ranks.
    pub fn any(seed: u64, process_count: u32, rank_count: u32) -> Self {
        // Of a sequence of its own: what else happens in a run stays as it is.
        let mut random = Random::stream(seed, "leaves!!");
        let process = ProcessIndex(random.below(process_count as usize) as u32);
        let call = 1 + random.number() % random.pick(&[3, 20, 100]);
        let departure = match random.below(8) {
            0..3 => Departure::Falsified,
            3 => Departure::Clock,
            4 => Departure::Probe,
            5 => Departure::Send(random.below(rank_count as usize)),
            6 => Departure::Change,
            _ => Departure::Less,
        };
        Self { process, call, departure }
    }

    /// Faults to inject in this process.
    pub fn faults(self, process: ProcessIndex) -> Vec<ProcessFault> {
        let is_asked = self.process == process && self.departure == Departure::Falsified;
        if is_asked { vec![ProcessFault::Falsify { call: self.call, bit: 7 }] } else { Vec::new() }
    }

    /// Called when the program of a process begins: plans its departure.
    pub fn begin(self, process: ProcessIndex) {
        if self.process == process && self.departure != Departure::Falsified {
            *planned() = Some((self.call, self.departure));
        }
    }
}

fn planned() -> std::sync::MutexGuard<'static, Option<(u64, Departure)>> {
    PLANNED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records that the calling process leaves the path of its siblings.
fn record_departure(departure: Departure) {
    let me = job().map(|job| job.welcome.world.process(job.welcome.me));
    world::with_current(|world| {
        world.say(|| format!("{me:?} leaves the path of its siblings: {departure:?}"));
        world.left.extend(me);
    });
}

/// Called after each call of the program, which may make an additional one now. After `MPI_Finalize` nothing is agreed
/// on any more.
pub fn after_call() {
    if !phase::is_active() {
        return;
    }
    let departure = {
        let mut planned = planned();
        let Some((calls, departure)) = &mut *planned else { return };
        *calls = calls.saturating_sub(1);
        if *calls > 0 || *departure == Departure::Less {
            return;
        }
        let departure = *departure;
        *planned = None;
        departure
    };
    record_departure(departure);
    match departure {
        Departure::Clock => _ = mpi::clock(),
        Departure::Probe => {
            let (mut flag, mut status) = (0, Status::empty());
            mpi!(call_iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, CommHandle::WORLD, &raw mut flag, &raw mut status));
        }
        Departure::Send(to) => _ = mpi::isend(CommHandle::WORLD, &STRAY_WORDS, to, STRAY_TAG),
        Departure::Change => {
            let _inside = threads::enter_quietly();
            decide::effect(u64::MAX, 0, Vec::new);
        }
        Departure::Falsified | Departure::Less => {}
    }
}

/// Called before a send, a reading of a clock or a change. Returns true if the program omits it.
pub fn is_left_out() -> bool {
    let is_left_out = planned().take_if(|(calls, departure)| *calls == 0 && *departure == Departure::Less).is_some();
    if is_left_out {
        record_departure(Departure::Less);
    }
    is_left_out
}
