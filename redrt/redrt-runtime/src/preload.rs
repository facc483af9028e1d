//! Client of the library that is preloaded into replicas; see `docs/determinism.md`.

use super::call::Answer;
use super::lock_events::LockOperation;
use redrt_wire::card::{EARLY_THREADS_MAX, EarlyThread};
use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

type ClockHook = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int;
type RandomHook = unsafe extern "C" fn(*mut u8, usize) -> c_int;
type TurnHook = unsafe extern "C" fn(c_int, c_int) -> c_int;
type CountHook = unsafe extern "C" fn(c_int, *mut u8, usize) -> c_int;
type LockHook = unsafe extern "C" fn(c_int, *const LockOperation) -> u64;
type InstallFunction = unsafe extern "C" fn(*const Hooks);
type InternalFunction = extern "C" fn(bool) -> bool;
type FilesFunction = unsafe extern "C" fn(Option<Answer>, bool) -> bool;
type SpareFunction = extern "C" fn(c_int, bool);
type NumberFunction = extern "C" fn() -> u64;
type StirFunction = extern "C" fn();
type PauseFunction = extern "C" fn(bool) -> bool;
type ExchangesFunction = extern "C" fn(bool);
type HoldFunction = unsafe extern "C" fn(*mut EarlyThread) -> usize;
type LimitFunction = unsafe extern "C" fn(*const EarlyThread, usize);

/// Functions of this library that answer calls of the program in place of the C library. The layout is that of the
/// preloaded library.
#[repr(C)]
pub struct Hooks {
    size_bytes: usize,
    clock: Option<ClockHook>,
    random: Option<RandomHook>,
    turn: Option<TurnHook>,
    lock: Option<LockHook>,
    count: Option<CountHook>,
}

impl Hooks {
    /// Hooks that answer for clocks, for the order of an interpreter's threads, for the order of locks, and for counts
    /// of the system.
    pub const fn new(clock: ClockHook, turn: TurnHook, lock: LockHook, count: CountHook) -> Self {
        let (clock, turn, lock, count) = (Some(clock), Some(turn), Some(lock), Some(count));
        Self { size_bytes: size_of::<Self>(), clock, random: None, turn, lock, count }
    }
}

struct Functions {
    install: InstallFunction,
    internal: InternalFunction,
    number: NumberFunction,
    files: FilesFunction,
    spare: SpareFunction,
    stir: StirFunction,
    pause: PauseFunction,
    hold: HoldFunction,
    exchanges: ExchangesFunction,
    limit: LimitFunction,
}

fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: - the name ends with a zero: it is a C string.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!symbol.is_null()).then_some(symbol)
}

fn functions() -> Option<&'static Functions> {
    process_local! {
        static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
    }
    let find = || {
        let (install, internal) = (symbol(c"redrt_preload_install")?, symbol(c"redrt_preload_internal_thread")?);
        let number = symbol(c"redrt_thread_number")?;
        let files = symbol(c"redrt_preload_install_files")?;
        let spare = symbol(c"redrt_preload_spare")?;
        let stir = symbol(c"redrt_preload_stir_waiters")?;
        let pause = symbol(c"redrt_preload_pause_order")?;
        let hold = symbol(c"redrt_preload_hold_early")?;
        let exchanges = symbol(c"redrt_preload_hold_exchanges")?;
        let limit = symbol(c"redrt_preload_limit_early")?;
        Some(Functions {
            // SAFETY: - the preloaded library exports a function of this type under this name.
            install: unsafe { std::mem::transmute::<*mut c_void, InstallFunction>(install) },
            // SAFETY: - the preloaded library exports a function of this type under this name.
            internal: unsafe { std::mem::transmute::<*mut c_void, InternalFunction>(internal) },
            // SAFETY: - the preloaded library exports a function of this type under this name.
            number: unsafe { std::mem::transmute::<*mut c_void, NumberFunction>(number) },
            // SAFETY: - the preloaded library exports a function of this type under this name.
            files: unsafe { std::mem::transmute::<*mut c_void, FilesFunction>(files) },
            // SAFETY: - the preloaded library exports a function of this type under this name.
            spare: unsafe { std::mem::transmute::<*mut c_void, SpareFunction>(spare) },
            // SAFETY: - the preloaded library exports a function of this type under this name.
            stir: unsafe { std::mem::transmute::<*mut c_void, StirFunction>(stir) },
            // SAFETY: - the preloaded library exports a function of this type under this name.
            pause: unsafe { std::mem::transmute::<*mut c_void, PauseFunction>(pause) },
            // SAFETY: - the preloaded library exports a function of this type under this name.
            hold: unsafe { std::mem::transmute::<*mut c_void, HoldFunction>(hold) },
            // SAFETY: - the preloaded library exports a function of this type under this name.
            exchanges: unsafe { std::mem::transmute::<*mut c_void, ExchangesFunction>(exchanges) },
            // SAFETY: - the preloaded library exports a function of this type under this name.
            limit: unsafe { std::mem::transmute::<*mut c_void, LimitFunction>(limit) },
        })
    };
    FUNCTIONS.get_or_init(find).as_ref()
}

/// Address of a function of the preloaded library, which identifies its mapping; `None` without the library.
pub fn address() -> Option<usize> {
    functions().map(|functions| functions.install as usize)
}

/// Returns true if the library is preloaded.
pub fn is_present() -> bool {
    functions().is_some()
}

/// Installs these hooks; `None` removes them.
pub fn install(hooks: Option<&'static Hooks>) {
    if let Some(functions) = functions() {
        // SAFETY: - the hooks and their functions stay valid: this library is never unloaded, since it has threads.
        unsafe { (functions.install)(hooks.map_or(std::ptr::null(), std::ptr::from_ref)) };
    }
}

/// Installs the function that answers calls about files; `None` removes it. With `only_looks` the C library still makes
/// the calls. Returns true if streams are covered too; `None` without the preloaded library.
pub fn install_files(answer: Option<Answer>, only_looks: bool) -> Option<bool> {
    // SAFETY: - the function stays valid: this library is never unloaded, since it has threads.
    functions().map(|functions| unsafe { (functions.files)(answer, only_looks) })
}

/// Protects this descriptor of the library from being closed by the program, or ends that.
pub fn spare(fd: c_int, is_spared: bool) {
    if let Some(functions) = functions() {
        (functions.spare)(fd, is_spared);
    }
}

/// No thread of the program is between an attempt of an ordered call on a descriptor and its record, until this is
/// dropped.
pub struct NoExchange(());

impl NoExchange {
    /// Waits for threads that are. They need no lock of the engine for their records.
    pub fn begin() -> Self {
        if let Some(functions) = functions() {
            (functions.exchanges)(true);
        }
        Self(())
    }
}

impl Drop for NoExchange {
    fn drop(&mut self) {
        if let Some(functions) = functions() {
            (functions.exchanges)(false);
        }
    }
}

/// Makes threads that wait for a signal of another thread look again.
pub fn stir_waiters() {
    if let Some(functions) = functions() {
        (functions.stir)();
    }
}

/// Pauses or resumes the ordering of the calling thread's lock operations. Returns the previous setting.
pub fn pause_order(is_paused: bool) -> bool {
    functions().is_some_and(|functions| (functions.pause)(is_paused))
}

/// Makes threads that are there before `MPI_Init` stand still at their next lock. Returns how far they are.
pub fn hold_early_threads() -> Vec<EarlyThread> {
    let Some(functions) = functions() else { return Vec::new() };
    let mut counts = vec![EarlyThread::default(); EARLY_THREADS_MAX];
    // SAFETY: - the preloaded library fills in no more than that.
    let count = unsafe { (functions.hold)(counts.as_mut_ptr()) };
    counts.truncate(count);
    counts
}

/// Lets those threads go on until they are as far as this. The order of threads begins when they are.
pub fn limit_early_threads(limits: &[EarlyThread]) {
    if let Some(functions) = functions() {
        let limits = &limits[..limits.len().min(EARLY_THREADS_MAX)];
        // SAFETY: - valid for reading that many.
        unsafe { (functions.limit)(limits.as_ptr(), limits.len()) };
    }
}

/// While `internal`, the calling thread gets real clocks and random bytes. Returns the previous setting.
pub fn set_internal(internal: bool) -> bool {
    functions().is_some_and(|functions| (functions.internal)(internal))
}

/// The calling thread's number, the same in all replicas; `None` without the preloaded library.
pub fn thread_number() -> Option<u64> {
    functions().map(|functions| (functions.number)())
}
