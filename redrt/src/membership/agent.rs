//! The agent: a thread that sleeps until the daemon says something.

use crate::dynamic::{checkpoint, redrun as dynamic};
use crate::faults;
use crate::links::listening;
use crate::mutation::{self, Mutation};
use crate::posix;
use crate::runtime::control::Control;
use crate::runtime::{Job, abort, job, leave, threads, workers};
use crate::undo;
use redrt_engine as engine;
use redrt_wire::control::{Determinism, FromAgent, ToAgent};
use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tracing::debug;

/// While a copy is awaited, or not in step yet, the library makes progress on its own so often, in milliseconds: the
/// program may compute for long, and the copy needs what only this process has. The same while what it prints has to
/// wait.
const HELP_INTERVAL_MS: i32 = 2;

process_local! {
    /// Copies are awaited, or not in step.
    static IS_AWAITING: AtomicBool = AtomicBool::new(false);
    /// The program may be stopped in a write until its siblings have printed as much. They may need what only this
    /// process has, or what others cannot send without it.
    static IS_HELD: AtomicBool = AtomicBool::new(false);
    /// Siblings are to agree on the call at which a signal comes, and the program may compute for long.
    static IS_SIGNALLED: AtomicBool = AtomicBool::new(false);
    /// Set when every process of the job is finalizing.
    static RELEASED: AtomicBool = AtomicBool::new(false);
    /// Images of this process that it has gone on from.
    static LIFE: AtomicU32 = AtomicU32::new(0);
}

/// Which life of this process it is. What it told its coordinator in another one, nobody has heard.
pub fn life() -> u32 {
    LIFE.load(Ordering::Acquire)
}

/// This process goes on from an image: the job that it is in now has said nothing to it yet.
pub fn begin_anew() {
    LIFE.fetch_add(1, Ordering::AcqRel);
}

/// Whether the job may be left.
pub fn is_released() -> bool {
    RELEASED.load(Ordering::Acquire)
}

/// Starts the threads that listen, unless the program runs by itself: one to the daemon, and one for links. A handshake
/// waits for the other end, which may have lost its power; views must not wait for it.
pub fn start(job: &'static Job, listener: Option<TcpListener>) -> io::Result<()> {
    let Some(control) = job.control else { return Ok(()) };
    workers::spawn("redrt-agent", Box::new(move || listen_to_daemon(control)))?;
    let Some(listener) = listener else { return Ok(()) };
    listening::serve(listener)
}

fn listen_to_daemon(control: &Control) {
    let heed_in_job = |message| {
        if let Some(job) = job() {
            heed(job, control, message);
        }
    };
    control.serve(help_others, heed_in_job);
    if !is_released() {
        leave::say_if_closed(control);
        // The daemon is gone and the job with it: leave nothing behind.
        std::process::abort();
    }
}

/// Makes progress for others, if somebody needs that. How long it may be until the next time.
fn help_others() -> i32 {
    let is_needed = [&IS_AWAITING, &IS_HELD, &IS_SIGNALLED].iter().any(|flag| flag.load(Ordering::Relaxed));
    if !is_needed {
        return -1;
    }
    let cell = engine::cell();
    cell.help_others();
    if IS_SIGNALLED.load(Ordering::Relaxed) {
        IS_SIGNALLED.store(!cell.are_signals_agreed(), Ordering::Relaxed);
    }
    HELP_INTERVAL_MS
}

pub(crate) fn heed(job: &Job, control: &Control, message: ToAgent) {
    let cell = engine::cell();
    match message {
        ToAgent::View(view) => {
            if !view.fits(&job.welcome.world) {
                return abort(1, "the daemon on this host sent a view of another job".to_owned());
            }
            cell.apply_view(view);
            posix::meet();
        }
        ToAgent::Cards(cards) => {
            cell.set_cards(cards);
            checkpoint::go_on();
        }
        ToAgent::Pins(pins) => {
            if !pins.places().all(|newcomer| job.welcome.world.contains(newcomer)) {
                return abort(1, "the daemon on this host speaks of a place of another job".to_owned());
            }
            debug!(target: "runtime", ?pins, "others are awaited");
            cell.set_pins(&pins);
            // Who stands ready asks for nothing.
            IS_AWAITING.store(!pins.awaited.is_empty(), Ordering::Relaxed);
            // If the daemon is gone, so is the job.
            let _ = control.send(&FromAgent::Pinned(pins.awaited));
        }
        ToAgent::Ask { wave } => {
            if job.welcome.world.degree(job.welcome.me.rank) > 1 {
                // Where polls are not agreed on, each replica makes as many calls as it happens to.
                let is_counted = job.welcome.options.determinism == Determinism::Full;
                let calls = if is_counted { threads::calls_of(0) } else { 0 };
                // If the daemon is gone, so is the job.
                let _ = control.send(&FromAgent::Pace { calls });
            }
            if !mutation::is_planted(Mutation::SilenceUnheard) {
                cell.look_for_silence();
            }
            let thread_count = threads::mpi_thread_count(workers::count());
            let may_be_passive = !engine::contact::are_met() && !checkpoint::has_asked();
            let passive = may_be_passive.then(|| cell.passive(thread_count, &job.welcome.view)).flatten();
            // If the daemon is gone, so is the job.
            let waits = passive.is_some() || cell.is_waiting(thread_count);
            let statistics = cell.lock().statistics();
            let _ = control.send(&FromAgent::Answer { wave, passive, waits, statistics });
            // Afterwards: a process that has something on its way out does not seem to wait. What is said now shows in
            // the counts of the next wave, so the job is not taken for one in which nothing moves any more.
            cell.tell_paths();
        }
        ToAgent::Scrub(message) => crate::scrub::heed(message, job.welcome.me.rank),
        ToAgent::Trace(sending) => {
            let maps = engine::traces::maps();
            let trace = cell.lock().traces.as_ref().and_then(|traces| traces.find(&sending, &maps));
            // If the daemon is gone, so is the job.
            let _ = control.send(&FromAgent::Trace(sending, trace));
        }
        ToAgent::Signal { number, signal } => {
            // Where polls are not agreed on, replicas do not make the same calls.
            let is_agreed = job.welcome.options.determinism == Determinism::Full;
            if is_agreed && !mutation::is_planted(Mutation::SignalByItself) {
                cell.hear_signal(number, signal);
                IS_SIGNALLED.store(!cell.are_signals_agreed(), Ordering::Relaxed);
            } else {
                cell.hear_signal_alone(signal);
            }
        }
        ToAgent::Dynamic(number, answer) => dynamic::heed(number, answer),
        ToAgent::Held(held) => IS_HELD.store(held, Ordering::Relaxed),
        ToAgent::Release => {
            debug!(target: "runtime", "the job may be left");
            RELEASED.store(true, Ordering::Release);
            cell.wake();
        }
        // A line that was given up before this process had heard of it.
        ToAgent::LineGoes(_) => {}
        ToAgent::ChangesSince(place) => undo::begin_here(&place),
        ToAgent::NoFlip => faults::end_standstill(),
        ToAgent::Welcome(_) | ToAgent::Place(_) => {}
    }
}
