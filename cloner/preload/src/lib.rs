//! `libredclone.so`: puts the cloner's agent into an ordinary program.
//!
//! `redclone run` loads it by `LD_PRELOAD` and hands over a listening socket, whose number is in the environment.
//! Before the program's own code runs, the agent's thread is started and the traces are removed: the variables are
//! taken out of the environment and the socket is closed in the program's table of descriptors, so programs that this
//! one starts know nothing of it. Without that variable the library does nothing.

use cloner_agent::{Agent, Hooks, Setup};
use std::ffi::{CStr, c_char, c_int};

const LISTENER: &CStr = c"REDCLONE_AGENT_FD";
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
    let listener = unsafe { libc::atoi(listener) };
    clean_environment();
    let setup = Setup { listener, rseq_offset: cloner_agent::rseq_offset(), hooks: Hooks::none() };
    let tid = Agent::new(&setup).map_or(-1, Agent::start);
    if tid < 0 {
        let text = b"redclone: the agent's thread could not be started; this process cannot be cloned\n";
        // SAFETY: - text is valid for its length.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    }
    // The agent took its own table of descriptors along when it was made.
    // SAFETY: - the number that redclone handed over; nothing else of the program has it.
    unsafe { libc::close(listener) };
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
