//! The agent: a thread that sleeps until the daemon says something; and how all threads of the library's own are
//! started.

use super::{Job, cloning, control::Control, links, networks};
use crate::dynamic::redrun as dynamic;
use redrt_engine as engine;
use redrt_wire::control::{Determinism, FromAgent, ToAgent};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// While a copy is awaited, or not in step yet, the library makes progress on its own so often, in milliseconds: the
/// program may compute for long, and the copy needs what only this process has. The same while what it prints has to
/// wait.
const HELP_INTERVAL_MS: i32 = 2;

process_local! {
    /// Copies are awaited, or not in step.
    static IS_AWAITING: AtomicBool = AtomicBool::new(false);
    /// The program may be stopped in a write until its siblings have printed as much. They may need what only this process
    /// has, or what others cannot send without it.
    static IS_HELD: AtomicBool = AtomicBool::new(false);
    /// Set when every process of the job is finalizing.
    static RELEASED: AtomicBool = AtomicBool::new(false);
    /// Where links are accepted, once they are.
    static LISTENS_AT: Mutex<Option<SocketAddr>> = Mutex::new(None);
    /// Threads of this process that the library started.
    static OWN_THREADS: AtomicU32 = AtomicU32::new(0);
}

/// Whether the job may be left.
pub fn is_released() -> bool {
    RELEASED.load(Ordering::Acquire)
}

/// Starts the threads that listen, unless the program runs by itself: one to the daemon, and one for links. A handshake
/// waits for the other end, which may have lost its power; views must not wait for it.
pub fn start(job: &'static Job, listener: Option<TcpListener>) -> io::Result<()> {
    let Some(control) = job.control else { return Ok(()) };
    spawn("redrt-agent", Box::new(move || listen_to_daemon(control)))?;
    let Some(listener) = listener else { return Ok(()) };
    serve_links(&mut LISTENS_AT.lock().unwrap_or_else(PoisonError::into_inner), listener).map(drop)
}

fn serve_links(place: &mut Option<SocketAddr>, listener: TcpListener) -> io::Result<SocketAddr> {
    cloning::note_listener(&listener);
    let address = listener.local_addr()?;
    links::start(networks::tcp().serve()?, listener)?;
    *place = Some(address);
    Ok(address)
}

/// Where this process accepts links. Without need of any in its own job it begins when it is first asked. That a thread
/// is started then moves the program's memory, which is of no matter without replicas.
pub fn listen_for_links() -> io::Result<SocketAddr> {
    let mut place = LISTENS_AT.lock().unwrap_or_else(PoisonError::into_inner);
    match (*place, super::job()) {
        (Some(address), _) => Ok(address),
        (None, Some(job)) => serve_links(&mut place, cloning::open_listener(job.welcome.listen)?),
        (None, None) => Err(io::ErrorKind::NotConnected.into()),
    }
}

/// Starts a thread of the library's own, which gets no signals of the program. It has begun when this returns.
///
/// The trap: the C library keeps what a thread needs in the program's heap, and maps an arena for what the thread
/// itself allocates first. What the program allocates lies elsewhere after that. So threads are started one after the
/// other, in calls that all replicas make at the same place, and allocate nothing from the C library later.
pub fn spawn(name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    OWN_THREADS.fetch_add(1, Ordering::Relaxed);
    let masked = block_signals();
    // No channel: it would be one more thing that the C library keeps for this thread.
    let begun = Arc::new((Mutex::new(false), Condvar::new()));
    let theirs = begun.clone();
    let begin = move || {
        *theirs.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        theirs.1.notify_one();
        drop(theirs);
        run();
    };
    let spawned = std::thread::Builder::new().name(name.into()).stack_size(256 << 10).spawn(begin).map(drop);
    restore_signals(&masked);
    if spawned.is_ok() {
        let has_begun = begun.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(begun.1.wait_while(has_begun, |has_begun| !*has_begun));
    }
    spawned
}

/// The application's signals are for the application's threads.
fn block_signals() -> libc::sigset_t {
    // SAFETY: - an all-zero set is a valid value to be overwritten.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: - both sets are valid; the new thread inherits the mask that is set here.
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
    }
    before
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: - the set is what pthread_sigmask returned.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
}

fn listen_to_daemon(control: &Control) {
    let heed_in_job = |message| {
        if let Some(job) = super::job() {
            heed(job, control, message);
        }
    };
    control.serve(help_others, heed_in_job);
    if !is_released() {
        super::leave::say_if_closed(control);
        // The daemon is gone and the job with it: leave nothing behind.
        std::process::abort();
    }
}

/// Makes progress for others, if somebody needs that. How long it may be until the next time.
fn help_others() -> i32 {
    if !IS_AWAITING.load(Ordering::Relaxed) && !IS_HELD.load(Ordering::Relaxed) {
        return -1;
    }
    engine::cell().help_others();
    HELP_INTERVAL_MS
}

pub(crate) fn heed(job: &Job, control: &Control, message: ToAgent) {
    let cell = engine::cell();
    match message {
        ToAgent::View(view) => {
            if !view.fits(&job.welcome.world) {
                return super::abort(1, "the daemon on this host sent a view of another job".to_owned());
            }
            cell.apply_view(view);
        }
        ToAgent::Cards(cards) => cell.set_cards(cards),
        ToAgent::Pins(pins) => {
            if !pins.places().all(|newcomer| job.welcome.world.contains(newcomer)) {
                return super::abort(1, "the daemon on this host speaks of a place of another job".to_owned());
            }
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
                let calls = if is_counted { super::threads::calls_of(0) } else { 0 };
                // If the daemon is gone, so is the job.
                let _ = control.send(&FromAgent::Pace { calls });
            }
            let thread_count = super::threads::mpi_thread_count(OWN_THREADS.load(Ordering::Relaxed));
            let may_be_passive = !engine::contact::are_met();
            let passive = may_be_passive.then(|| cell.passive(thread_count, &job.welcome.view)).flatten();
            // If the daemon is gone, so is the job.
            let statistics = cell.lock().statistics();
            let _ = control.send(&FromAgent::Answer { wave, passive, statistics });
        }
        ToAgent::Scrub(message) => crate::scrub::heed(message, job.welcome.me.rank),
        ToAgent::Trace(sending) => {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
            let trace = cell.lock().traces.as_ref().and_then(|traces| traces.find(&sending, &maps));
            // If the daemon is gone, so is the job.
            let _ = control.send(&FromAgent::Trace(sending, trace));
        }
        ToAgent::Dynamic(number, answer) => dynamic::heed(number, answer),
        ToAgent::Held(held) => IS_HELD.store(held, Ordering::Relaxed),
        ToAgent::Release => {
            RELEASED.store(true, Ordering::Release);
            cell.wake();
        }
        ToAgent::Welcome(_) | ToAgent::Place(_) => {}
    }
}
