//! Names for temporary files: the same in all replicas. The C library would take them from random bytes of its own.

use super::paths::{lstat, mkdir, open, stat};
use crate::{random, real};
use libc::{c_char, c_int};

const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const LETTER_COUNT: usize = 6;
/// The C library's limit on the names that are tried.
const ATTEMPTS_MAX: u32 = 62 * 62 * 62;

/// Makes a file or directory with a new name.
///
/// # Safety
/// `template` is a zero-terminated string that can be written.
unsafe fn make_temporary(template: *mut c_char, suffix: c_int, make: impl Fn() -> c_int) -> c_int {
    // SAFETY: a zero-terminated string, by contract.
    let length = unsafe { libc::strlen(template) };
    let end = usize::try_from(suffix).ok().and_then(|suffix| length.checked_sub(suffix));
    let Some(begin) = end.and_then(|end| end.checked_sub(LETTER_COUNT)) else {
        real::set_errno(libc::EINVAL);
        return -1;
    };
    // SAFETY: within the string, which can be written, by contract.
    let letters = unsafe { std::slice::from_raw_parts_mut(template.add(begin).cast::<u8>(), LETTER_COUNT) };
    if letters != b"XXXXXX" {
        real::set_errno(libc::EINVAL);
        return -1;
    }
    for _ in 0..ATTEMPTS_MAX {
        let mut bytes = [0_u8; LETTER_COUNT];
        // SAFETY: valid for writing its length.
        unsafe { random::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        for (letter, byte) in letters.iter_mut().zip(bytes) {
            *letter = LETTERS[usize::from(byte) % LETTERS.len()];
        }
        let made = make();
        if made >= 0 || real::errno() != libc::EEXIST {
            return made;
        }
    }
    -1
}

/// Interposes the family of `mkstemp`.
macro_rules! temporaries {
    ($($name:ident($($argument:ident),*) suffix $suffix:expr, flags $flags:expr;)+) => { $(
        /// Replaces the C library's.
        ///
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(template: *mut c_char $(, $argument: c_int)*) -> c_int {
            let flags = ($flags & !libc::O_ACCMODE) | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
            // SAFETY: - the arguments are valid for the C library's function, by contract.
            unsafe { make_temporary(template, $suffix, || open(template, flags, 0o600)) }
        }
    )+ };
}

temporaries! {
    mkstemp() suffix 0, flags 0;
    mkstemp64() suffix 0, flags 0;
    mkostemp(flags) suffix 0, flags flags;
    mkostemp64(flags) suffix 0, flags flags;
    mkstemps(suffix) suffix suffix, flags 0;
    mkstemps64(suffix) suffix suffix, flags 0;
    mkostemps(suffix, flags) suffix suffix, flags flags;
    mkostemps64(suffix, flags) suffix suffix, flags flags;
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdtemp(template: *mut c_char) -> *mut c_char {
    // SAFETY: - the arguments are valid for `mkdtemp`, by contract.
    let made = unsafe { make_temporary(template, 0, || mkdir(template, 0o700)) };
    if made < 0 { std::ptr::null_mut() } else { template }
}

/// Makes a name that no file has.
///
/// # Safety
/// `template` is a zero-terminated string that can be written.
unsafe fn make_name(template: *mut c_char) -> bool {
    let is_new = || {
        // SAFETY: - `stat` consists of integers, for which zeros are valid.
        let mut status: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: - the template is a string, and `status` a local.
        let is_there = unsafe { lstat(template, &raw mut status) } == 0;
        real::set_errno(libc::EEXIST);
        if is_there { -1 } else { 0 }
    };
    let before = real::errno();
    // SAFETY: - the caller's promise is passed on.
    let is_made = unsafe { make_temporary(template, 0, is_new) } == 0;
    if is_made {
        real::set_errno(before);
    }
    is_made
}

/// Replaces the C library's. Without a name the string is empty afterwards.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mktemp(template: *mut c_char) -> *mut c_char {
    // SAFETY: - a string that can be written, by contract.
    if !unsafe { make_name(template) } {
        // SAFETY: - as above: it has at least its zero byte.
        unsafe { *template = 0 };
    }
    template
}

/// Size of the names of `tmpnam`, in bytes (`L_tmpnam`).
const NAME_BYTES: usize = 20;
const NAME: &[u8; NAME_BYTES] = b"/tmp/fileXXXXXX\0\0\0\0\0";

/// Replaces the C library's. Null has no name.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tmpnam_r(name: *mut c_char) -> *mut c_char {
    if name.is_null() {
        return name;
    }
    // SAFETY: - the caller has promised room for that many bytes.
    unsafe { std::ptr::copy_nonoverlapping(NAME.as_ptr().cast(), name, NAME_BYTES) };
    // SAFETY: - a zero-terminated string that can be written, by the line above.
    if unsafe { make_name(name) } { name } else { std::ptr::null_mut() }
}

/// Room for the name that `tmpnam` returns where it is given none.
struct Name(std::cell::UnsafeCell<[u8; NAME_BYTES]>);

// SAFETY: - as in the C library: whoever calls `tmpnam` without a place does so in one thread at a time.
unsafe impl Sync for Name {}

static LAST_NAME: Name = Name(std::cell::UnsafeCell::new([0; NAME_BYTES]));

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tmpnam(name: *mut c_char) -> *mut c_char {
    let name = if name.is_null() { LAST_NAME.0.get().cast() } else { name };
    // SAFETY: - room for a name: the caller's or the static one.
    unsafe { tmpnam_r(name) }
}

/// Replaces the C library's: a name in `$TMPDIR`, in `directory`, or in `/tmp`, in memory of the C library.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tempnam(directory: *const c_char, prefix: *const c_char) -> *mut c_char {
    let is_directory = |path: *const c_char| {
        // SAFETY: - `stat` consists of integers, for which zeros are valid.
        let mut status: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: - the path is null or a string, by contract, and `status` a local.
        !path.is_null() && unsafe { stat(path, &raw mut status) } == 0 && status.st_mode & libc::S_IFMT == libc::S_IFDIR
    };
    let variable = crate::state::variable(c"TMPDIR").map_or(std::ptr::null(), std::ffi::CStr::as_ptr);
    let within = [variable, directory].into_iter().find(|path| is_directory(*path)).unwrap_or(c"/tmp".as_ptr());
    let prefix = if prefix.is_null() { c"file".as_ptr() } else { prefix };
    // SAFETY: - strings, by contract.
    let bytes = unsafe { libc::strlen(within) + libc::strlen(prefix).min(5) } + LETTER_COUNT + 2;
    // SAFETY: - the caller frees it.
    let name = unsafe { libc::malloc(bytes) }.cast::<c_char>();
    if name.is_null() {
        return name;
    }
    // SAFETY: - room for that many bytes; the format has three strings, the second of at most five bytes.
    unsafe { libc::snprintf(name, bytes, c"%s/%.5sXXXXXX".as_ptr(), within, prefix) };
    // SAFETY: - a zero-terminated string that can be written, by the line above.
    if unsafe { make_name(name) } {
        return name;
    }
    // SAFETY: - allocated above, and not returned.
    unsafe { libc::free(name.cast()) };
    std::ptr::null_mut()
}
