//! A program that embeds the agent on a thread of its own, with hooks. Its socket is left out of images and made anew
//! in the copy.

use cloner::launch;
use cloner_agent::{Agent, Hooks, Setup};
use std::cell::RefCell;
use std::ffi::c_void;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Events of the hooks, in order, and the socket of this process.
struct Runtime {
    /// The engine's lock: no thread may hold it at the cut.
    engine: Mutex<u64>,
    events: Mutex<Vec<&'static str>>,
    transport: Mutex<Option<TcpListener>>,
}

static RUNTIME: Runtime =
    Runtime { engine: Mutex::new(0), events: Mutex::new(Vec::new()), transport: Mutex::new(None) };

thread_local! {
    // Thread-local because all hooks run on the agent's thread.
    static HELD: RefCell<Option<MutexGuard<'static, u64>>> = const { RefCell::new(None) };
}

fn record(event: &'static str) {
    RUNTIME.events.lock().unwrap().push(event);
}

/// Number of cuts still to be refused before one is allowed; initially $EMBEDDER_REFUSALS.
static REFUSALS: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn before_cut(_: *mut c_void, _: u32, _: i32) -> i32 {
    if REFUSALS.load(Ordering::SeqCst) > 0 {
        REFUSALS.fetch_sub(1, Ordering::SeqCst);
        return libc::EBUSY;
    }
    HELD.set(Some(RUNTIME.engine.lock().unwrap()));
    record("before cut");
    make_timer();
    0
}

/// The kernel's id of a timer that is made just before threads are stopped.
static TIMER: AtomicI32 = AtomicI32::new(-1);

fn make_timer() {
    let (mut number, far) = (-1_i32, [0_i64, 0, 1_000_000, 0]);
    // `struct sigevent` with SIGEV_NONE: the timer notifies nobody.
    let event = [0_u64, (libc::SIGEV_NONE as u64) << 32, 0, 0, 0, 0, 0, 0];
    // SAFETY: - `event` and `far` have the sizes that the calls read, and `number` is a local that the first one
    //           writes.
    let made = unsafe {
        libc::syscall(libc::SYS_timer_create, libc::CLOCK_MONOTONIC, event.as_ptr(), &raw mut number) == 0
            && libc::syscall(libc::SYS_timer_settime, number, 0, far.as_ptr(), 0) == 0
    };
    assert!(made);
    TIMER.store(number, Ordering::SeqCst);
}

fn has_timer() -> bool {
    let mut left = [0_i64; 4];
    // SAFETY: - `left` has the four words of `struct itimerspec` that the call writes.
    let found = unsafe { libc::syscall(libc::SYS_timer_gettime, TIMER.load(Ordering::SeqCst), left.as_mut_ptr()) } == 0;
    found && left[2] > 900_000
}

unsafe extern "C" fn at_cut(_: *mut c_void) {}

unsafe extern "C" fn in_source_after(_: *mut c_void, well: i32) {
    record(if well == 1 { "in source after" } else { "in source after a failure" });
    drop(HELD.take());
}

unsafe extern "C" fn in_copy_after(_: *mut c_void) {
    record("in copy after");
    let old = RUNTIME.transport.lock().unwrap().replace(TcpListener::bind("127.0.0.1:0").unwrap());
    // The descriptor does not exist in the copy, so the old value must not close it.
    let _ = old.map(IntoRawFd::into_raw_fd);
    drop(HELD.take());
}

fn program(listener: i32) -> ! {
    let hooks = Hooks {
        context: std::ptr::null_mut(),
        before_cut: Some(before_cut),
        at_cut: Some(at_cut),
        in_source_after: Some(in_source_after),
        in_copy_after: Some(in_copy_after),
    };
    let refusals = std::env::var("EMBEDDER_REFUSALS").ok().and_then(|count| count.parse().ok());
    REFUSALS.store(refusals.unwrap_or(0), Ordering::SeqCst);
    let transport = TcpListener::bind("127.0.0.1:0").unwrap();
    let agent =
        Agent::new(&Setup { listener, rseq_offset: 0, standard: cloner_agent::standard_of(listener), hooks }).unwrap();
    assert!(agent.exclusions().add_descriptor(transport.as_raw_fd()));
    *RUNTIME.transport.lock().unwrap() = Some(transport);
    struct Handed(Agent);
    // SAFETY: - only the thread that receives the agent uses it from now on.
    unsafe impl Send for Handed {}
    let handed = Handed(agent);
    std::thread::spawn(move || {
        let Handed(agent) = { handed };
        agent.run_here()
    });
    for _ in 0..3 {
        std::thread::spawn(|| {
            loop {
                let mut engine = RUNTIME.engine.lock().unwrap();
                *engine += 1;
                drop(engine);
                std::thread::yield_now();
            }
        });
    }
    println!("running");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    // Shows that the engine works, and the socket too.
    let before = *RUNTIME.engine.lock().unwrap();
    while *RUNTIME.engine.lock().unwrap() < before + 100 {
        std::thread::yield_now();
    }
    let address = RUNTIME.transport.lock().unwrap().as_ref().unwrap().local_addr().unwrap();
    std::net::TcpStream::connect(address).unwrap();
    assert!(TIMER.load(Ordering::SeqCst) < 0 || has_timer(), "the timer is lost");
    println!("{}", RUNTIME.events.lock().unwrap().join(", "));
    println!("done");
    std::io::stdout().flush().unwrap();
    std::process::exit(0)
}

fn main() {
    let running = launch::start(None, |inside| program(inside.started().into_raw_fd()));
    let running = running.unwrap();
    eprintln!("process {}", running.pid);
    std::process::exit(running.wait().unwrap());
}
