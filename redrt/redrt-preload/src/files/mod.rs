//! Files: the calls of the C library that open, write and change them, which the MPI library may answer in its place.
//!
//! ```text
//!   program ── open, write, rename … ──▶ here ── Call ──▶ MPI library: agreed with the siblings, done by one of them
//!      └── fprintf ──▶ the C library's streams ── their functions for reading and writing (streams.rs) ──▶ here
//! ```
//! A call is asked about when it is the program's own: not in a hook, in the library's threads, or in a child of the
//! process, also one that still shares its memory (`vfork`). Other children ask on their own, when what they change is
//! to be recorded (children.rs). What the library does not answer goes to the C library as it came. `docs/files.md`
//! lists the calls.

mod attributes;
pub mod call;
mod children;
mod descriptors;
mod directories;
mod paths;
mod ranges;
mod streams;
mod trees;

use crate::{identity, real, state};
use call::{Answer, Call, Operation};
pub use descriptors::close;
use libc::{c_char, c_int, c_void};
use std::any::TypeId;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

thread_local! {
    /// The library waits until the C library has returned.
    static IS_WAITED_FOR: Cell<bool> = const { Cell::new(false) };
}

/// The library answers no call: it only wants to see what changes files.
static ONLY_LOOKS: AtomicBool = AtomicBool::new(false);
static ANSWER: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Lets this function answer calls about files, or nobody when it is null. One that only looks leaves all of them to
/// the C library. The library finds this function by `dlsym`. Returns whether streams (`FILE *`) are answered for too.
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

/// Its first instruction, as far as files go.
pub fn begin() {
    children::begin();
}

/// In a forked child nobody answers, until it changes a file.
pub fn leave_alone() {
    ANSWER.store(std::ptr::null_mut(), Ordering::Release);
    children::begin();
}

/// Has the call answered; `None` when it is the C library's.
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
    // SAFETY: the call lives until it returns; its pointers are the program's, who vouches for them.
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

/// Says what the C library has returned, if the library waits for that.
pub fn returned(result: i64) {
    if IS_WAITED_FOR.replace(false) {
        ask(&mut Call { result, ..Call::new(Operation::Returned) });
    }
}

/// Whether there is anybody who answers, for the program.
pub fn asks() -> bool {
    !ANSWER.load(Ordering::Acquire).is_null() && !ONLY_LOOKS.load(Ordering::Relaxed) && state::is_program()
}

/// Whether a descriptor is of a file that is agreed upon.
pub fn is_known(fd: c_int) -> bool {
    ask(&mut Call { fd, ..Call::new(Operation::IsKnown) }).is_some()
}

/// An argument as the C library is given it: paths of the process itself are named by its real id.
trait Told: Sized {
    fn told(self) -> Self {
        self
    }
}

impl<T: 'static> Told for *const T {
    fn told(self) -> Self {
        if TypeId::of::<T>() != TypeId::of::<c_char>() {
            return self;
        }
        // SAFETY: - strings of the calls here are null or zero-terminated: the program has promised what the C library
        //           asks for.
        unsafe { identity::real_path(self.cast()).cast() }
    }
}

impl<T> Told for *mut T {}
impl Told for c_int {}
impl Told for u32 {}
impl Told for i64 {}
impl Told for u64 {}
impl Told for usize {}
impl Told for isize {}

/// Interposes a function: its name, arguments and result, what is asked, and what it returns when the C library lacks
/// it.
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
            $(let $argument = $crate::files::Told::told($argument);)*
            #[allow(clippy::needless_update, reason = "some calls say everything")]
            let mut call = $crate::files::call::Call {
                $($field $(: $value)?,)*
                ..$crate::files::call::Call::new($crate::files::call::Operation::$operation)
            };
            match $crate::files::ask(&mut call) {
                Some(result) => result as $result,
                None => {
                    let result = $crate::real::next!($name($($argument => $type),*) -> $result, {
                        $crate::real::set_errno(libc::ENOSYS);
                        -1
                    });
                    $crate::files::returned(result as i64);
                    result
                }
            }
        }
    )+ };
}
use interpose;
