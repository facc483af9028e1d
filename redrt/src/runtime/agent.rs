//! The agent thread: sleeps until the daemon says something or another process opens a link.

use super::{Job, control::Control};
use crate::engine;
use crate::transport::tcp::{self, Receiver};
use redrt_wire::control::ToAgent;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set when every process of the job is finalizing.
static RELEASED: AtomicBool = AtomicBool::new(false);

/// Whether the job may be left.
pub fn is_released() -> bool {
    RELEASED.load(Ordering::Acquire)
}

/// Starts the agent, unless the program runs by itself.
pub fn start(job: &'static Job, listener: Option<TcpListener>) -> io::Result<()> {
    let Some(control) = &job.control else { return Ok(()) };
    if let Some(listener) = &listener {
        listener.set_nonblocking(true)?;
    }
    let masked = block_signals();
    let thread = std::thread::Builder::new().name("redrt-agent".into()).stack_size(256 << 10);
    let started = thread.spawn(move || run(job, control, listener.as_ref()));
    restore_signals(&masked);
    started.map(drop)
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

fn run(job: &'static Job, control: &'static Control, listener: Option<&TcpListener>) {
    let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut entries = vec![entry(control.fd())];
    entries.extend(listener.map(|listener| entry(listener.as_raw_fd())));
    loop {
        while let Ok(Some(message)) = control.received_already() {
            heed(message);
        }
        // SAFETY: - entries is valid for its length during the call.
        unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as u64, -1) };
        if entries[0].revents != 0 {
            match control.receive() {
                Ok(message) => heed(message),
                // The daemon is gone and the job with it: leave nothing behind.
                Err(_) if !is_released() => std::process::abort(),
                Err(_) => return,
            }
        }
        if let Some(listener) = listener
            && entries[1].revents != 0
            && let Ok(accepted) = tcp::accept(listener, &job.welcome.secret)
        {
            engine::cell().link_opened(Receiver::new(accepted));
        }
    }
}

fn heed(message: ToAgent) {
    let cell = engine::cell();
    match message {
        ToAgent::View(view) => {
            cell.lock().apply_view(view);
            cell.wake();
        }
        ToAgent::Release => {
            RELEASED.store(true, Ordering::Release);
            cell.wake();
        }
        ToAgent::Welcome(_) | ToAgent::Cards(_) => {}
    }
}
