//! The agent: threads that sleep until the daemon says something or another process opens a link.

use super::{Job, cloning, control::Control};
use crate::engine::{self, opening};
use crate::transport::tcp::{self, Connection, Receiver};
use redrt_wire::control::{FromAgent, ToAgent};
use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Connections that have not proved themselves yet, at most. Whoever opens more waits for those before.
const ADMISSIONS_MAX: usize = 32;

/// While a copy is awaited, or not in step yet, the library makes progress on its own so often, in milliseconds: the program may compute
/// for long, and the copy needs what only this process has.
const HELP_INTERVAL_MS: i32 = 2;

/// How many copies are awaited, or not in step.
static NEWCOMERS: AtomicU32 = AtomicU32::new(0);

/// Set when every process of the job is finalizing.
static RELEASED: AtomicBool = AtomicBool::new(false);

/// Threads of this process that the library started.
static OWN_THREADS: AtomicU32 = AtomicU32::new(0);

/// Whether the job may be left.
pub fn is_released() -> bool {
    RELEASED.load(Ordering::Acquire)
}

/// Starts the threads that listen, unless the program runs by itself: one to the daemon, one for links that others
/// open, and one for links that this process opens. A handshake waits for the other end, which may have lost its power;
/// views must not wait for it.
pub fn start(job: &'static Job, listener: Option<TcpListener>) -> io::Result<()> {
    let Some(control) = job.control else { return Ok(()) };
    let mut started = spawn("redrt-agent", Box::new(move || listen_to_daemon(control)));
    if let (Ok(()), Some(listener)) = (&started, listener) {
        cloning::note_listener(&listener);
        started = spawn("redrt-accept", Box::new(move || accept_links(&listener)));
        if let (Ok(()), Some(wishes)) = (&started, opening::install()) {
            let serve = move || opening::serve(&wishes, |opened| engine::cell().link_dialled(opened));
            started = spawn("redrt-opener", Box::new(serve));
        }
    }
    started
}

/// Starts a thread of the library's own, which gets no signals of the program.
pub fn spawn(name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    OWN_THREADS.fetch_add(1, Ordering::Relaxed);
    let masked = block_signals();
    let spawned = std::thread::Builder::new().name(name.into()).stack_size(256 << 10).spawn(run).map(drop);
    restore_signals(&masked);
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
    control.serve(help_newcomers, heed_in_job);
    if !is_released() {
        // The daemon is gone and the job with it: leave nothing behind.
        std::process::abort();
    }
}

/// Makes progress for newcomers, if there are any. How long it may be until the next time.
fn help_newcomers() -> i32 {
    if NEWCOMERS.load(Ordering::Relaxed) == 0 {
        return -1;
    }
    engine::cell().help_newcomers();
    HELP_INTERVAL_MS
}

fn accept_links(listener: &TcpListener) {
    let admissions = Arc::new(Admissions::default());
    loop {
        match listener.accept() {
            // Each on a thread of its own: a stranger that says nothing must not keep others waiting.
            Ok((stream, _)) => {
                let Some(job) = super::job() else { continue };
                let stream = Connection::new(stream);
                let admission = Admissions::begin(&admissions);
                let admit = move || {
                    let _admission = admission;
                    // Whoever does not know the secret, or goes away, is refused; there is nobody to tell.
                    if let Ok(accepted) = tcp::admit(stream, &job.welcome.secret) {
                        engine::cell().link_opened(Receiver::new(accepted));
                    }
                };
                let thread = std::thread::Builder::new().name("redrt-admit".into()).stack_size(256 << 10);
                if let Err(error) = thread.spawn(admit) {
                    let message = format!("replica {} cannot start a thread: {error}", job.welcome.me);
                    return super::abort(1, message);
                }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {}
            Err(error) => {
                return super::abort(1, format!("data connections cannot be accepted: {error}"));
            }
        }
    }
}

/// Counts the connections that are proving themselves.
#[derive(Default)]
struct Admissions {
    count: Mutex<usize>,
    fewer: Condvar,
}

/// One of them.
struct Admission(Arc<Admissions>);

impl Admissions {
    /// Waits until there are few enough.
    fn begin(admissions: &Arc<Self>) -> Admission {
        let mut count = admissions.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *count >= ADMISSIONS_MAX {
            count = admissions.fewer.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
        *count += 1;
        Admission(admissions.clone())
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        *self.0.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.fewer.notify_one();
    }
}

fn heed(job: &Job, control: &Control, message: ToAgent) {
    let cell = engine::cell();
    match message {
        ToAgent::View(view) => {
            if !view.fits(&job.welcome.world) {
                return super::abort(1, "the daemon on this host sent a view of another job".to_owned());
            }
            cell.apply_view(view);
        }
        ToAgent::Cards(cards) => cell.set_cards(cards),
        ToAgent::Pin(newcomer) if job.welcome.world.contains(newcomer) => {
            cell.pin(newcomer);
            NEWCOMERS.fetch_add(1, Ordering::Relaxed);
            // If the daemon is gone, so is the job.
            let _ = control.send(&FromAgent::Pinned(newcomer));
        }
        ToAgent::Unpin(newcomer) if job.welcome.world.contains(newcomer) => {
            cell.unpin(newcomer);
            let fewer = |count: u32| Some(count.saturating_sub(1));
            let _ = NEWCOMERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
        }
        ToAgent::Pin(_) | ToAgent::Unpin(_) => {
            super::abort(1, "the daemon on this host speaks of a place of another job".to_owned())
        }
        ToAgent::Ask { wave } => {
            let thread_count = super::threads::mpi_thread_count(OWN_THREADS.load(Ordering::Relaxed));
            let passive = cell.passive(thread_count, &job.welcome.view);
            // If the daemon is gone, so is the job.
            let statistics = cell.lock().statistics().unwrap_or_default();
            let _ = control.send(&FromAgent::Answer { wave, passive, statistics });
        }
        ToAgent::Release => {
            RELEASED.store(true, Ordering::Release);
            cell.wake();
        }
        ToAgent::Welcome(_) | ToAgent::Place(_) => {}
    }
}
