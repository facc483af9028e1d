//! Files: the C library's calls that open, write and change them, which the MPI library may answer in its place.
//!
//! ```text
//!   program ── open, write, rename … ──▶ here ── Call ──▶ MPI library: agreed with the siblings, done by one of them
//!      └── fprintf ──▶ the C library's streams ── their functions for reading and writing (streams.rs) ──▶ here
//! ```
//! Only the program's own calls are asked about: none in a hook, in the library's threads, or in a child of the
//! process, even one that still shares its memory (`vfork`). Other children ask on their own, when their changes are to
//! be recorded (children.rs). Calls that the library does not answer go to the C library unchanged. `docs/files.md`
//! lists the calls.

mod attributes;
pub mod call;
mod children;
mod descriptors;
mod directories;
mod paths;
mod ranges;
mod streams;
mod temporaries;
mod trees;

use crate::{identity, ordered, real, state};
use call::{Answer, Call, Operation};
pub use descriptors::close;
use libc::{c_char, c_int, c_void};
use std::any::TypeId;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

thread_local! {
    /// True while the library waits for the C library's result.
    static IS_WAITED_FOR: Cell<bool> = const { Cell::new(false) };
}

/// True when the library answers no call, and only observes changes of files.
static ONLY_LOOKS: AtomicBool = AtomicBool::new(false);
static ANSWER: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the function that answers calls about files, or none when it is null. One that only looks leaves all of them to
/// the C library. The library finds this function by `dlsym`. Returns true when streams (`FILE *`) are answered for
/// too.
///
/// # Safety
/// The function stays loaded until the next call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn redrt_preload_install_files(answer: Option<Answer>, only_looks: bool) -> bool {
    state::know_process();
    ONLY_LOOKS.store(only_looks, Ordering::Relaxed);
    let has_streams = answer.is_none() || streams::watch();
    ANSWER.store(answer.map_or(std::ptr::null_mut(), |answer| answer as *mut c_void), Ordering::Release);
    has_streams
}

/// Begins this process, as far as files are concerned.
pub fn begin() {
    children::begin();
}

/// Called in a forked child: calls are not answered until the child changes a file.
pub fn leave_alone() {
    ANSWER.store(std::ptr::null_mut(), Ordering::Release);
    children::begin();
}

/// Asks for an answer; `None` leaves the call to the C library.
fn ask(call: &mut Call) -> Option<i64> {
    let mut answer = ANSWER.load(Ordering::Acquire);
    if answer.is_null() && children::has_loaded(call) {
        answer = ANSWER.load(Ordering::Acquire);
    }
    if answer.is_null() || !state::is_program() {
        return None;
    }
    // SAFETY: only functions of this type are stored.
    let answer = unsafe { std::mem::transmute::<*mut c_void, Answer>(answer) };
    let before = real::errno();
    // SAFETY: the call lives until it returns; its pointers are valid, by contract of the interposed function.
    let answered = state::in_hook(|| unsafe { answer(call) });
    IS_WAITED_FOR.set(answered == 2);
    let answered = answered == 1;
    if answered && call.result < 0 {
        real::set_errno(call.error);
        return Some(-1);
    }
    real::set_errno(before);
    answered.then_some(call.result)
}

/// Reports the C library's result, if the library waits for it.
pub fn returned(result: i64) {
    if IS_WAITED_FOR.replace(false) {
        ask(&mut Call { result, ..Call::new(Operation::Returned) });
    }
}

/// True when the program's calls have a function that answers.
pub fn asks() -> bool {
    !ANSWER.load(Ordering::Acquire).is_null() && !ONLY_LOOKS.load(Ordering::Relaxed) && state::is_program()
}

/// True when a descriptor is of a file that replicas agree on.
pub fn is_known(fd: c_int) -> bool {
    ask(&mut Call { fd, ..Call::new(Operation::IsKnown) }).is_some()
}

/// An argument for the C library: paths of the process itself have its real id.
trait LibraryArgument: Sized {
    fn for_library(self) -> Self {
        self
    }
}

impl<T: 'static> LibraryArgument for *const T {
    fn for_library(self) -> Self {
        if TypeId::of::<T>() != TypeId::of::<c_char>() {
            return self;
        }
        // SAFETY: - strings of the calls here are null or zero-terminated: by contract of the C library.
        unsafe { identity::real_path(self.cast()).cast() }
    }
}

impl<T> LibraryArgument for *mut T {}
impl LibraryArgument for c_int {}
impl LibraryArgument for u32 {}
impl LibraryArgument for i64 {}
impl LibraryArgument for u64 {}
impl LibraryArgument for usize {}
impl LibraryArgument for isize {}

/// Interposes a function: its name, arguments and result, the question, and the result when the C library lacks the
/// function.
macro_rules! interpose {
    ($(
        fn $name:ident($($argument:ident : $type:ty),* $(,)?) -> $result:ty $(, or $missing:expr)? => $operation:ident {
            $($field:ident $(: $value:expr)?),* $(,)?
        };
    )+) => { $(
        /// Replaces the C library's.
        ///
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            $(let $argument = $crate::files::LibraryArgument::for_library($argument);)*
            #[allow(clippy::needless_update, reason = "some calls say everything")]
            let mut call = $crate::files::call::Call {
                $($field $(: $value)?,)*
                ..$crate::files::call::Call::new($crate::files::call::Operation::$operation)
            };
            match $crate::files::ask(&mut call) {
                Some(result) => {
                    $crate::files::record_duplicate(&call, result);
                    result as $result
                }
                None => {
                    if let Some(result) = $crate::files::transfer_in_order(&call) {
                        return result as $result;
                    }
                    let result = $crate::real::next!($name($($argument => $type),*) -> $result, {
                        $crate::real::set_errno(libc::ENOSYS);
                        -1
                    });
                    $crate::files::returned(result as i64);
                    $crate::files::record_duplicate(&call, result as i64);
                    result
                }
            }
        }
    )+ };
}
use interpose;

/// Makes a read or write of a descriptor by which threads reach each other, in its turn. `None` for other calls.
#[inline]
fn transfer_in_order(call: &Call) -> Option<i64> {
    let way = match call.operation {
        Operation::Read => ordered::Way::Reads,
        Operation::Write => ordered::Way::Writes,
        _ => return None,
    };
    let whole = libc::iovec { iov_base: call.buffer, iov_len: usize::try_from(call.length).unwrap_or(0) };
    let pieces = match call.vector.is_null() {
        true => ordered::Pieces { first: &raw const whole, count: 1 },
        false => ordered::Pieces { first: call.vector, count: call.count },
    };
    if call.offset == -1 { ordered::transfer(call.fd, way, pieces) } else { None }
}

/// Called after a call: a descriptor that was duplicated is known as its original is.
#[inline]
fn record_duplicate(call: &Call, result: i64) {
    if call.operation == Operation::Duplicate && result >= 0 {
        ordered::duplicated(call.fd, result as c_int);
    }
}
