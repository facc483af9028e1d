//! `libredclone.so`: starts the cloner's agent in an ordinary program.
//!
//! `redclone run` loads it by `LD_PRELOAD` and passes a listening socket. An environment variable has the socket's
//! number and the process id; without it the library does nothing. The agent's thread is started before the program's
//! own code runs.
//!
//! A program that this one executes in its place, as a wrapper script does, needs an agent too, so variables and socket
//! are kept. A child of the program has another process id: there all traces are removed, so it does not notice them.

use cloner_agent::{Agent, Hooks, Setup};
use std::ffi::{CStr, c_char, c_int};

/// Variable with the number of the socket and the process id, separated by a colon.
const LISTENER: &CStr = c"REDCLONE_AGENT";
const PRELOAD_BEFORE: &CStr = c"REDCLONE_PRELOAD_BEFORE";
const PRELOAD: &CStr = c"LD_PRELOAD";

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;

extern "C" fn start(_: c_int, _: *const *const c_char, _: *const *const c_char) {
    // SAFETY: - the name ends with NUL.
    //         - the process has one thread here, so nothing changes the environment meanwhile.
    let listener = unsafe { libc::getenv(LISTENER.as_ptr()) };
    if listener.is_null() {
        return;
    }
    // SAFETY: - `getenv` returned a string that ends with NUL, and the variable is not changed while it is in use.
    let handed_over = unsafe { CStr::from_ptr(listener) }.to_str().ok().and_then(|text| text.split_once(':'));
    let numbers = handed_over.and_then(|(fd, pid)| Some((fd.parse::<c_int>().ok()?, pid.parse::<u32>().ok()?)));
    let Some((listener, pid)) = numbers else { return clean_environment() };
    if pid != std::process::id() {
        // SAFETY: - `listener` is the socket that redclone passed along with the variable, and nothing here owns it.
        unsafe { libc::close(listener) };
        return clean_environment();
    }
    if !is_listening(listener) {
        // A program executed earlier in this process has closed it.
        return clean_environment();
    }
    let standard = cloner_agent::standard_of(listener);
    let setup = Setup { listener, rseq_offset: cloner_agent::rseq_offset(), standard, hooks: Hooks::none() };
    let tid = Agent::new(&setup).map_or(-1, Agent::start);
    if tid < 0 {
        let text = b"redclone: the agent's thread could not be started; this process cannot be cloned\n";
        // SAFETY: - `text` is a slice, passed with its own length.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    }
}

fn is_listening(fd: c_int) -> bool {
    let (mut listens, mut length): (c_int, libc::socklen_t) = (0, size_of::<c_int>() as libc::socklen_t);
    let place = (&raw mut listens).cast();
    // SAFETY: - `listens` is a local with the `length` bytes that the call may write.
    let code = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN, place, &raw mut length) };
    code == 0 && listens == 1
}

fn clean_environment() {
    // SAFETY: - all names end with NUL.
    //         - the process has one thread here, and `before` is used before its variable changes.
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
