//! `libredclone.so`: puts the cloner's agent into an ordinary program.
//!
//! `redclone run` loads it by `LD_PRELOAD` and hands over a listening socket, whose number is in the environment with
//! the id of the process. Before the program's own code runs, the agent's thread is started. What the program may
//! execute in its own place, as a wrapper script does, is to have an agent too: so variables and socket stay. A program
//! that this one starts has another process id: there the traces are removed, and it knows nothing of them. Without
//! that variable the library does nothing.

use cloner_agent::{Agent, Hooks, Setup};
use std::ffi::{CStr, c_char, c_int};

/// Number of the socket and id of the process, with a colon between.
const LISTENER: &CStr = c"REDCLONE_AGENT";
const PRELOAD_BEFORE: &CStr = c"REDCLONE_PRELOAD_BEFORE";
const PRELOAD: &CStr = c"LD_PRELOAD";

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;

extern "C" fn start(_: c_int, _: *const *const c_char, _: *const *const c_char) {
    // SAFETY: - the program has one thread and the environment is nobody else's yet.
    let listener = unsafe { libc::getenv(LISTENER.as_ptr()) };
    if listener.is_null() {
        return;
    }
    // SAFETY: - getenv gives strings that end with NUL, valid until the variable is changed.
    let handed_over = unsafe { CStr::from_ptr(listener) }.to_str().ok().and_then(|text| text.split_once(':'));
    let numbers = handed_over.and_then(|(fd, pid)| Some((fd.parse::<c_int>().ok()?, pid.parse::<u32>().ok()?)));
    let Some((listener, pid)) = numbers else { return clean_environment() };
    if pid != std::process::id() {
        // SAFETY: - the number that redclone handed over, which came here with the variable.
        unsafe { libc::close(listener) };
        return clean_environment();
    }
    if !is_listening(listener) {
        // Whatever was executed before has closed it.
        return clean_environment();
    }
    let standard = cloner_agent::standard_of(listener);
    let setup = Setup { listener, rseq_offset: cloner_agent::rseq_offset(), standard, hooks: Hooks::none() };
    let tid = Agent::new(&setup).map_or(-1, Agent::start);
    if tid < 0 {
        let text = b"redclone: the agent's thread could not be started; this process cannot be cloned\n";
        // SAFETY: - text is valid for its length.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    }
}

fn is_listening(fd: c_int) -> bool {
    let (mut listens, mut length): (c_int, libc::socklen_t) = (0, size_of::<c_int>() as libc::socklen_t);
    let place = (&raw mut listens).cast();
    // SAFETY: - place is valid for writes of length bytes.
    let code = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN, place, &raw mut length) };
    code == 0 && listens == 1
}

fn clean_environment() {
    // SAFETY: - names end with NUL; a value from getenv is used before the variable changes.
    unsafe {
        libc::unsetenv(LISTENER.as_ptr());
        let before = libc::getenv(PRELOAD_BEFORE.as_ptr());
        if before.is_null() {
            libc::unsetenv(PRELOAD.as_ptr());
        } else {
            libc::setenv(PRELOAD.as_ptr(), before, 1);
            libc::unsetenv(PRELOAD_BEFORE.as_ptr());
        }
    }
}
