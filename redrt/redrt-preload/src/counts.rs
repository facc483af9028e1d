//! Counts of the system: used memory and processor time, faults, switches, load, processors.
//!
//! From `MPI_Init` to `MPI_Finalize` the library answers, which agrees with its siblings. Before that no replica can
//! ask another: uses by the process itself are shown as 0, as by kernels that do not count them. After `MPI_Finalize`
//! the last agreed values are shown. Facts about the host are real then.

use crate::clock::{NS_PER_S, shown, to_ns, to_timeval};
use crate::real::{self, next};
use crate::state;
use libc::{c_double, c_int, c_long, c_uint, pid_t, rusage};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// The question for the library, numbered in `redrt_wire::event`.
const OF_PROCESS: c_int = 64;
const OF_HOST: c_int = 65;
const OF_PROCESSOR: c_int = 66;

/// No use by a process and its threads.
// SAFETY: a structure of integers, for which zeros are valid.
const NOTHING: rusage = unsafe { std::mem::zeroed() };

thread_local! {
    /// Last shown uses: of the process, of the thread, of its children.
    static LATEST: [Cell<rusage>; 3] = const { [const { Cell::new(NOTHING) }; 3] };
}

/// The source of a shown value.
#[derive(PartialEq, Eq)]
enum Author {
    /// The kernel alone.
    Kernel,
    /// The library.
    Library,
    /// None: replicas cannot agree at this moment.
    Nobody,
}

/// Replaces the values of this process by those that replicas agree on.
fn agree<T: Copy>(of: c_int, found: &mut T) -> Author {
    if state::job().is_none() || crate::interpreter::is_inside() {
        return Author::Kernel;
    }
    let error = real::errno();
    let bytes = std::ptr::from_mut(found).cast::<u8>();
    let answer = state::ask_library(|hooks| match hooks.count {
        // SAFETY: as many bytes are valid; the function is valid by the contract of redrt_preload_install.
        Some(ask) => unsafe { ask(of, bytes, size_of::<T>()) },
        None => 0,
    });
    real::set_errno(error);
    match answer {
        Some(0) => Author::Kernel,
        Some(_) => Author::Library,
        None if !crate::identity::was_started_by_daemon() => Author::Kernel,
        None => Author::Nobody,
    }
}

/// All counts of a use, times left out.
fn counts(usage: &mut rusage) -> [&mut c_long; 14] {
    [
        &mut usage.ru_maxrss,
        &mut usage.ru_ixrss,
        &mut usage.ru_idrss,
        &mut usage.ru_isrss,
        &mut usage.ru_minflt,
        &mut usage.ru_majflt,
        &mut usage.ru_nswap,
        &mut usage.ru_inblock,
        &mut usage.ru_oublock,
        &mut usage.ru_msgsnd,
        &mut usage.ru_msgrcv,
        &mut usage.ru_nsignals,
        &mut usage.ru_nvcsw,
        &mut usage.ru_nivcsw,
    ]
}

/// Replaces a use by the one to show. In a thread, none of its values goes back.
fn show_usage(usage: &mut rusage, latest: &Cell<rusage>) {
    let mut before = latest.get();
    let own = *usage;
    counts(usage).into_iter().zip(counts(&mut before)).for_each(|(now, before)| *now = (*now).max(*before));
    match agree(OF_PROCESS, usage) {
        Author::Library => latest.set(*usage),
        Author::Kernel => *usage = own,
        Author::Nobody => *usage = latest.get(),
    }
}

/// Replaces the C library's. All processor time counts as the program's own.
///
/// # Safety
/// `usage` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrusage(who: c_int, usage: *mut rusage) -> c_int {
    let result = next!(getrusage(who => c_int, usage => *mut rusage) -> c_int, -1);
    if result != 0 || state::job().is_none() {
        return result;
    }
    // SAFETY: valid for writing, by contract: the C library has just written it.
    let usage = unsafe { &mut *usage };
    let (clock, at) = match who {
        libc::RUSAGE_SELF => (Some(libc::CLOCK_PROCESS_CPUTIME_ID), 0),
        libc::RUSAGE_THREAD => (Some(libc::CLOCK_THREAD_CPUTIME_ID), 1),
        _ => (None, 2),
    };
    LATEST.with(|latest| show_usage(usage, &latest[at]));
    if let Some(shown) = clock.and_then(shown) {
        usage.ru_utime = to_timeval(shown);
        usage.ru_stime = libc::timeval { tv_sec: 0, tv_usec: 0 };
    }
    result
}

/// Shows the use of a child that has ended.
fn show_child(child: pid_t, usage: *mut rusage) {
    // SAFETY: null, or valid for writing, by contract of `wait4`.
    let Some(usage) = (unsafe { usage.as_mut() }).filter(|_| child > 0) else { return };
    if agree(OF_PROCESS, usage) == Author::Nobody {
        *usage = NOTHING;
    }
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wait4(process: pid_t, status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t {
    let child = next!(
        wait4(process => pid_t, status => *mut c_int, options => c_int, usage => *mut rusage) -> pid_t,
        -1
    );
    show_child(child, usage);
    child
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wait3(status: *mut c_int, options: c_int, usage: *mut rusage) -> pid_t {
    let child = next!(wait3(status => *mut c_int, options => c_int, usage => *mut rusage) -> pid_t, -1);
    show_child(child, usage);
    child
}

/// Replaces the C library's. All processor time counts as the program's own.
///
/// # Safety
/// `times` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn times(times: *mut libc::tms) -> libc::clock_t {
    const NS_PER_TICK: i64 = NS_PER_S / 100;
    let result = next!(times(times => *mut libc::tms) -> libc::clock_t, -1);
    let (Some(used), Some(now)) = (shown(libc::CLOCK_PROCESS_CPUTIME_ID), shown(libc::CLOCK_MONOTONIC)) else {
        return result;
    };
    // SAFETY: null or valid for writing, by contract: the C library has just written it.
    if let Some(times) = unsafe { times.as_mut() } {
        let mut of_children = [times.tms_cutime, times.tms_cstime];
        if agree(OF_PROCESS, &mut of_children) == Author::Nobody {
            of_children = [0, 0];
        }
        let [cutime, cstime] = of_children;
        *times =
            libc::tms { tms_utime: to_ns(&used) / NS_PER_TICK, tms_stime: 0, tms_cutime: cutime, tms_cstime: cstime };
    }
    to_ns(&now) / NS_PER_TICK
}

/// Replaces the C library's.
///
/// # Safety
/// `facts` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sysinfo(facts: *mut libc::sysinfo) -> c_int {
    let result = next!(sysinfo(facts => *mut libc::sysinfo) -> c_int, -1);
    if result == 0 && state::job().is_some() {
        // SAFETY: valid for writing, by contract: the C library has just written it.
        let facts = unsafe { &mut *facts };
        agree(OF_HOST, facts);
        facts.uptime = shown(libc::CLOCK_BOOTTIME).map_or(facts.uptime, |shown| shown.tv_sec);
    }
    result
}

/// Replaces the C library's.
///
/// # Safety
/// `loads` is valid for writing `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getloadavg(loads: *mut c_double, count: c_int) -> c_int {
    let mut found = [0.0; 3];
    let pointer = found.as_mut_ptr();
    let known = next!(getloadavg(pointer => *mut c_double, 3 => c_int) -> c_int, -1);
    if known < 0 {
        return known;
    }
    agree(OF_HOST, &mut found);
    let known = known.min(count).max(0);
    // SAFETY: - valid for writing `count` numbers, by contract, which are no fewer; found has three.
    unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), loads, known as usize) };
    known
}

/// Replaces the C library's: the id of the leader's host.
#[unsafe(no_mangle)]
pub extern "C" fn gethostid() -> c_long {
    let mut id = next!(gethostid() -> c_long, 0);
    agree(OF_HOST, &mut id);
    id
}

/// The processor and the node of memory to show. Programs use them as indices into tables for the processors that they
/// know: where the leader's host has more processors, this process's own are shown.
fn show_processor(found: [c_uint; 2]) -> [c_uint; 2] {
    /// Number of this host's processors; 0 until it is known.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let mut shown = found;
    if agree(OF_PROCESSOR, &mut shown) != Author::Library || shown == found {
        return found;
    }
    let count = match COUNT.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: - touches no memory of ours.
            let count = state::in_hook(|| unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }).max(1) as u32;
            COUNT.store(count, Ordering::Relaxed);
            count
        }
        known => known,
    };
    if shown[0] < count { shown } else { found }
}

/// Replaces the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn sched_getcpu() -> c_int {
    let found = next!(sched_getcpu() -> c_int, -1);
    match c_uint::try_from(found) {
        Ok(found) => show_processor([found, 0])[0] as c_int,
        Err(_) => found,
    }
}

/// Replaces the C library's.
///
/// # Safety
/// `processor` and `node` are null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getcpu(processor: *mut c_uint, node: *mut c_uint) -> c_int {
    let mut found: [c_uint; 2] = [0; 2];
    let [own_processor, own_node] = found.each_mut().map(|number| std::ptr::from_mut(number) as c_long);
    // SAFETY: - both are valid for writing.
    let result = unsafe { real::system_call(libc::SYS_getcpu, [own_processor, own_node, 0, 0, 0, 0]) };
    if result < 0 {
        return real::with_errno(result) as c_int;
    }
    let [shown_processor, shown_node] = show_processor(found);
    // SAFETY: - null or valid for writing, by contract.
    unsafe {
        if let Some(processor) = processor.as_mut() {
            *processor = shown_processor;
        }
        if let Some(node) = node.as_mut() {
            *node = shown_node;
        }
    }
    0
}
