//! Process id and host name.
//!
//! The application sees a process id that no real process can have (above the kernel's largest, 2²²), the same in all
//! replicas of a rank and another in each rank. Functions with a process id take it for the process itself. Forked
//! children, and programs they run, have their real ids, by which their parent knows them.

use crate::real::{self, next};
use crate::state;
use libc::{c_char, c_int, pid_t};
use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU8, Ordering};

const PROC: &[u8] = b"/proc/";
/// Longest path to translate: paths below a process's directory are short, and longer ones stay unchanged.
const PATH_BYTES_MAX: usize = 256;

thread_local! {
    /// The translation of a path with the id that the process shows.
    static PATH: UnsafeCell<[u8; PATH_BYTES_MAX]> = const { UnsafeCell::new([0; PATH_BYTES_MAX]) };
}

const PID_BASE: i32 = (1 << 22) + 1;
const PARENT_PID: i32 = 1 << 22;

static STARTED_BY_DAEMON: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;

/// The id that this process shows, if it is not its own.
pub fn shown_process_id() -> Option<pid_t> {
    let job = state::job()?;
    (job.is_first_process() && was_started_by_daemon()).then(|| PID_BASE + job.rank() as i32)
}

/// True for a replica itself and for its forks, false for programs that it runs.
pub fn was_started_by_daemon() -> bool {
    match STARTED_BY_DAEMON.load(Ordering::Relaxed) {
        UNKNOWN => {
            let answer = parent_is_daemon();
            STARTED_BY_DAEMON.store(if answer { YES } else { NO }, Ordering::Relaxed);
            answer
        }
        known => known == YES,
    }
}

fn real_parent() -> pid_t {
    // SAFETY: getppid has no arguments.
    unsafe { real::system_call(libc::SYS_getppid, [0; 6]) as pid_t }
}

fn parent_is_daemon() -> bool {
    is_daemon(real_parent())
}

fn is_daemon(process: pid_t) -> bool {
    let mut name = [0; 16];
    read_proc(process, b"/comm", &mut name) == b"redrtd\n"
}

/// Writes the path of a file of `/proc` to `path`, which is zeroed and has room for it and a zero byte. It does not use
/// the standard library's formatting, which is too much for some callers.
fn put_path(process: pid_t, file: &[u8], path: &mut [u8]) {
    let mut length = 0;
    let mut put = |bytes: &[u8]| {
        path[length..length + bytes.len()].copy_from_slice(bytes);
        length += bytes.len();
    };
    let mut digits = [0; 10];
    let mut rest = process.max(0);
    let mut first = digits.len();
    while rest > 0 || first == digits.len() {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    put(PROC);
    put(&digits[first..]);
    put(file);
}

/// Reads the beginning of a file of `/proc`; the result is empty on an error.
fn read_proc<'a>(process: pid_t, file: &[u8], buffer: &'a mut [u8]) -> &'a [u8] {
    let mut path = [0u8; 32];
    put_path(process, file, &mut path);
    // SAFETY: path is zero-terminated: it was zeroed, and is longer than the bytes put into it; buffer is valid for
    //         its length.
    let count = unsafe {
        let open = [libc::AT_FDCWD.into(), path.as_ptr() as i64, libc::O_CLOEXEC.into(), 0, 0, 0];
        let fd = real::system_call(libc::SYS_openat, open);
        if fd < 0 {
            return &[];
        }
        let count = real::system_call(libc::SYS_read, [fd, buffer.as_mut_ptr() as i64, buffer.len() as i64, 0, 0, 0]);
        real::system_call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
        count
    };
    &buffer[..count.max(0) as usize]
}

/// The parent of a process: the second field after the name in `stat`. The name ends with the last parenthesis.
fn parent_of(process: pid_t) -> pid_t {
    let mut buffer = [0; 128];
    let stat = read_proc(process, b"/stat", &mut buffer);
    let Some(end) = stat.iter().rposition(|byte| *byte == b')') else { return 0 };
    let mut fields = stat[end + 1..].split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let digits = fields.nth(1).unwrap_or_default().iter();
    digits.fold(0, |number, digit| number * 10 + pid_t::from(digit.wrapping_sub(b'0') % 10))
}

/// The replica that this process is, or that runs it.
fn replica_process(job: &state::JobFacts) -> pid_t {
    if was_started_by_daemon() {
        return job.process();
    }
    let mut process = real_parent();
    while process > 1 {
        let parent = parent_of(process);
        if is_daemon(parent) {
            return process;
        }
        process = parent;
    }
    job.process()
}

/// The real id for one that the application names.
pub fn real_id(id: pid_t) -> pid_t {
    if id < PID_BASE {
        return id;
    }
    match state::job() {
        Some(job) if id == PID_BASE + job.rank() as i32 => replica_process(&job),
        _ => id,
    }
}

/// The real path, if `path` names the process's directory in `/proc` by the id it shows; else `path` itself. Valid
/// until the thread's next call.
///
/// # Safety
/// `path` is null or a zero-terminated string.
pub unsafe fn real_path(path: *const c_char) -> *const c_char {
    if path.is_null() || !state::is_active() {
        return path;
    }
    // SAFETY: a zero-terminated string, by contract.
    let Some(below) = unsafe { CStr::from_ptr(path) }.to_bytes().strip_prefix(PROC) else { return path };
    let length = below.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = below.split_at(length);
    let number = |number: pid_t, digit: &u8| number.checked_mul(10)?.checked_add(pid_t::from(digit - b'0'));
    let shown = digits.iter().try_fold(0, number).filter(|shown| *shown >= PID_BASE);
    let real = shown.map(|shown| (shown, real_id(shown))).filter(|(shown, real)| shown != real);
    // The id may have ten digits.
    let (Some((_, real)), true) = (real, rest.len() + PROC.len() + 10 < PATH_BYTES_MAX) else { return path };
    if !matches!(rest.first(), None | Some(b'/')) {
        return path;
    }
    PATH.with(|buffer| {
        // SAFETY: - the buffer is the thread's own, and the result of its last call is not used any more.
        let buffer = unsafe { &mut *buffer.get() };
        buffer.fill(0);
        put_path(real, rest, buffer);
        buffer.as_ptr().cast()
    })
}

/// Replaces the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn getpid() -> pid_t {
    shown_process_id().unwrap_or_else(real::process_id)
}

/// Replaces the C library's. The parent of a replica is the daemon, whose id differs by host.
#[unsafe(no_mangle)]
pub extern "C" fn getppid() -> pid_t {
    let parent = real_parent();
    if shown_process_id().is_some() {
        // The daemon's death shows as another parent.
        return if parent == 1 { 1 } else { PARENT_PID };
    }
    match state::job() {
        // A forked child of a replica, whose parent shows another id.
        Some(job) if parent == job.process() && was_started_by_daemon() => PID_BASE + job.rank() as i32,
        _ => parent,
    }
}

/// Replaces the C library's: the main thread's id is the process's, others are real.
#[unsafe(no_mangle)]
pub extern "C" fn gettid() -> pid_t {
    let thread = real::thread_id();
    if thread != real::process_id() {
        return thread;
    }
    shown_process_id().unwrap_or(thread)
}

/// Interposes functions whose first argument is a process or thread id.
macro_rules! by_id {
    ($( $name:ident ( $($argument:ident : $type:ty),* ) -> $result:ty; )+) => { $(
        /// Replaces the C library's: the process is known by the id it shows.
        ///
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(id: pid_t $(, $argument: $type)*) -> $result {
            let id = real_id(id);
            next!($name(id => pid_t $(, $argument => $type)*) -> $result, -1)
        }
    )+ };
}

by_id! {
    sigqueue(signal: c_int, value: libc::sigval) -> c_int;
    tgkill(thread: pid_t, signal: c_int) -> c_int;
    getsid() -> pid_t;
    sched_setaffinity(size: usize, set: *const libc::cpu_set_t) -> c_int;
    sched_getaffinity(size: usize, set: *mut libc::cpu_set_t) -> c_int;
    sched_setscheduler(policy: c_int, parameters: *const libc::sched_param) -> c_int;
    sched_getscheduler() -> c_int;
    sched_setparam(parameters: *const libc::sched_param) -> c_int;
    sched_getparam(parameters: *mut libc::sched_param) -> c_int;
    prlimit(resource: u32, new: *const libc::rlimit, old: *mut libc::rlimit) -> c_int;
    prlimit64(resource: u32, new: *const libc::rlimit64, old: *mut libc::rlimit64) -> c_int;
    pidfd_open(flags: u32) -> c_int;
    process_vm_readv(local: *const libc::iovec, locals: u64, remote: *const libc::iovec, remotes: u64, flags: u64) -> isize;
    process_vm_writev(local: *const libc::iovec, locals: u64, remote: *const libc::iovec, remotes: u64, flags: u64) -> isize;
}

/// Replaces the C library's: the process, and its group when it leads one, are known by the id it shows.
#[unsafe(no_mangle)]
pub extern "C" fn kill(id: pid_t, signal: c_int) -> c_int {
    let id = if id < -1 { -real_id(-id) } else { real_id(id) };
    next!(kill(id => pid_t, signal => c_int) -> c_int, -1)
}

/// Replaces the C library's. A replica leads its process group.
#[unsafe(no_mangle)]
pub extern "C" fn getpgrp() -> pid_t {
    shown_group(next!(getpgrp() -> pid_t, -1))
}

/// Replaces the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn getpgid(id: pid_t) -> pid_t {
    let id = real_id(id);
    shown_group(next!(getpgid(id => pid_t) -> pid_t, -1))
}

/// Replaces the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn setpgid(id: pid_t, group: pid_t) -> c_int {
    let (id, group) = (real_id(id), real_id(group));
    next!(setpgid(id => pid_t, group => pid_t) -> c_int, -1)
}

/// Replaces the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn killpg(group: pid_t, signal: c_int) -> c_int {
    let group = real_id(group);
    next!(killpg(group => pid_t, signal => c_int) -> c_int, -1)
}

fn shown_group(group: pid_t) -> pid_t {
    match state::job() {
        Some(job) if group == job.process() && was_started_by_daemon() => PID_BASE + job.rank() as i32,
        _ => group,
    }
}

/// The host name to show with its terminating zero.
fn shown_host() -> Option<&'static [u8]> {
    let host = state::job()?.host();
    if host.is_null() {
        return None;
    }
    // SAFETY: a zero-terminated string of the initial environment, which stays where it is.
    Some(unsafe { CStr::from_ptr(host) }.to_bytes_with_nul())
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gethostname(name: *mut c_char, length: usize) -> c_int {
    let Some(host) = shown_host().filter(|_| !name.is_null()) else {
        return next!(gethostname(name => *mut c_char, length => usize) -> c_int, -1);
    };
    // SAFETY: name is valid for writing length bytes, by contract; no more than that is copied.
    unsafe { std::ptr::copy_nonoverlapping(host.as_ptr().cast(), name, host.len().min(length)) };
    if host.len() > length {
        real::set_errno(libc::ENAMETOOLONG);
        return -1;
    }
    0
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uname(names: *mut libc::utsname) -> c_int {
    let result = next!(uname(names => *mut libc::utsname) -> c_int, -1);
    if result == 0
        && let Some(host) = shown_host()
    {
        // SAFETY: the call succeeded, so names is valid.
        let node = unsafe { &mut (*names).nodename };
        let count = host.len().min(node.len());
        for (to, from) in node.iter_mut().zip(&host[..count]) {
            *to = *from as c_char;
        }
        node[node.len() - 1] = 0;
    }
    result
}
