//! The agent: a thread that handles messages of the daemon, and sleeps in between.

use redrt_dynamic::{checkpoint, redrun as dynamic};
use redrt_engine as engine;
use redrt_files::posix;
use redrt_runtime::control::Control;
use redrt_runtime::faults;
use redrt_runtime::links::listening;
use redrt_runtime::mutation::{self, Mutation};
use redrt_runtime::undo;
use redrt_runtime::{Job, abort, job, leave, threads, workers};
use redrt_wire::control::{Determinism, FromAgent, ToAgent};
use redrt_wire::trace::TracePoint;
use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tracing::debug;

/// Time between two steps of progress by the agent, in milliseconds, while a copy is awaited or not in step, while
/// output of the program waits, or while a signal is not agreed on. The program may compute for long, and others need
/// messages that only this process has.
const HELP_INTERVAL_MS: i32 = 2;

process_local! {
    /// True while copies are awaited or not in step.
    static IS_AWAITING: AtomicBool = AtomicBool::new(false);
    /// True while the program may be stopped in a write, until its siblings have written as much. They may need
    /// messages that only this process has, or that others cannot send without it.
    static IS_HELD: AtomicBool = AtomicBool::new(false);
    /// True until siblings have agreed on the call at which a signal is raised: the program may compute for long.
    static IS_SIGNALLED: AtomicBool = AtomicBool::new(false);
    /// Set when every process of the job is finalizing.
    static RELEASED: AtomicBool = AtomicBool::new(false);
    /// Number of images that this process has gone on from.
    static LIFE: AtomicU32 = AtomicU32::new(0);
}

/// Number of this process's life. The present replication manager does not have reports of earlier lives.
pub fn life() -> u32 {
    LIFE.load(Ordering::Acquire)
}

/// Begins a new life: this process goes on from an image, and its present job has sent it nothing yet.
pub fn begin_anew() {
    LIFE.fetch_add(1, Ordering::AcqRel);
}

/// Returns true if the job may be left.
pub fn is_released() -> bool {
    RELEASED.load(Ordering::Acquire)
}

/// Starts the threads for the daemon and for links, unless the program was not started by redrun. Two threads: a
/// handshake waits for a peer, whose host may have lost its power, and new views must not wait for that.
pub fn start(job: &'static Job, listener: Option<TcpListener>) -> io::Result<()> {
    let Some(control) = job.control else { return Ok(()) };
    workers::spawn("redrt-agent", Box::new(move || listen_to_daemon(control)))?;
    let Some(listener) = listener else { return Ok(()) };
    listening::serve(listener)
}

fn listen_to_daemon(control: &Control) {
    let follow_in_job = |message| {
        if let Some(job) = job() {
            follow(job, control, message);
        }
    };
    control.serve(help_others, follow_in_job);
    if !is_released() {
        leave::say_if_closed(control);
        // The daemon has ended, and the job with it: no process may stay behind.
        std::process::abort();
    }
}

/// Makes progress for other processes, if they need it. Returns the time until the next step in milliseconds; -1 for no
/// limit.
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

/// Acts on a message of the daemon.
pub fn follow(job: &Job, control: &Control, message: ToAgent) {
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
            // Admitted copies that are not in step any more.
            IS_AWAITING.store(!pins.awaited.is_empty(), Ordering::Relaxed);
            // If the daemon is gone, so is the job.
            let _ = control.send(&FromAgent::Pinned(pins.awaited));
        }
        ToAgent::Ask { wave } => {
            if job.welcome.world.degree(job.welcome.me.rank) > 1 {
                // Without agreement on polls, the numbers of calls differ between replicas.
                let is_counted = job.welcome.options.determinism == Determinism::Full;
                let calls = if is_counted { threads::calls_of(0) } else { 0 };
                // If the daemon is gone, so is the job.
                let _ = control.send(&FromAgent::Pace { calls });
            }
            if !mutation::is_planted(Mutation::SilenceUnheard) {
                cell.break_silent();
            }
            let thread_count = threads::mpi_thread_count(workers::count());
            let may_be_passive = !engine::contact::are_met() && !checkpoint::has_asked();
            let passive = may_be_passive.then(|| cell.passive(thread_count, &job.welcome.view)).flatten();
            // If the daemon is gone, so is the job.
            let waits = passive.is_some() || cell.is_waiting(thread_count);
            let statistics = cell.lock().statistics();
            let _ = control.send(&FromAgent::Answer { wave, passive, waits, statistics });
            // Paths are sent last, since a process with outgoing messages does not seem to wait. Messages sent now show
            // in the counts of the next wave, so the job is not mistaken for one in which nothing moves.
            cell.announce_paths();
        }
        ToAgent::Scrub(message) => redrt_runtime::scrub::follow(message, job.welcome.me.rank),
        ToAgent::Trace(point) => {
            let maps = engine::traces::maps();
            let trace = match point {
                TracePoint::Send(sending) => cell.lock().traces().and_then(|traces| traces.find(&sending, &maps)),
                TracePoint::Thread(thread) => engine::traces::latest_lock_event(thread, &maps),
            };
            // If the daemon is gone, so is the job.
            let _ = control.send(&FromAgent::Trace(point, trace));
        }
        ToAgent::Signal { number, signal } => {
            // Without agreement on polls, replicas do not make the same calls.
            let is_agreed = job.welcome.options.determinism == Determinism::Full;
            if is_agreed && !mutation::is_planted(Mutation::SignalByItself) {
                cell.handle_signal(number, signal);
                IS_SIGNALLED.store(!cell.are_signals_agreed(), Ordering::Relaxed);
            } else {
                cell.handle_signal_alone(signal);
            }
        }
        ToAgent::Dynamic(number, answer) => dynamic::follow(number, answer),
        ToAgent::Held(held) => IS_HELD.store(held, Ordering::Relaxed),
        ToAgent::Release => {
            debug!(target: "runtime", "the job may be left");
            RELEASED.store(true, Ordering::Release);
            cell.wake();
        }
        // The checkpoint was given up before this process was held for it.
        ToAgent::CheckpointGoes(_) => {}
        ToAgent::ChangesSince(place) => undo::begin_here(&place),
        ToAgent::NoFlip => faults::end_standstill(),
        ToAgent::Welcome(_) | ToAgent::Place(_) => {}
    }
}
