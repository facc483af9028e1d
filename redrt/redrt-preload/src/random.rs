//! Random bytes: a generator (ChaCha20) keyed by the job's seed, the rank, the thread and the forks that led to the
//! process.
//!
//! Each thread has a stream, because the order in which threads ask differs between replicas. The bytes are
//! unpredictable only without the job's seed: they are no source for lasting keys.

use crate::real::{self, next};
use crate::{numbers, state};
use libc::{c_char, c_int, c_void};
use std::cell::Cell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Size of an opened `/dev/urandom`; after that a read gives end of file.
const DEVICE_BYTES: usize = 256 << 10;
const BLOCK_BYTES: usize = 64;

/// A digest of the forks that led here, and the number of forks made here.
static FORK_PATH: AtomicU64 = AtomicU64::new(0);
static FORK_COUNT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Blocks this thread has drawn. Requests begin with a fresh block.
    static BLOCKS: Cell<u64> = const { Cell::new(0) };
}

/// Counts a fork that is about to be made.
pub fn count_fork() {
    FORK_COUNT.fetch_add(1, Ordering::Relaxed);
}

/// Called in a forked process: its later bytes depend on its position among the parent's forks.
pub fn follow_fork() {
    let count = FORK_COUNT.swap(0, Ordering::Relaxed);
    let path = FORK_PATH.load(Ordering::Relaxed);
    FORK_PATH.store(state::mix(path ^ 0xf0f0, count), Ordering::Relaxed);
}

fn quarter(state: &mut [u32; 16], [a, b, c, d]: [usize; 4]) {
    state[a] = state[a].wrapping_add(state[b]);
    state[d] = (state[d] ^ state[a]).rotate_left(16);
    state[c] = state[c].wrapping_add(state[d]);
    state[b] = (state[b] ^ state[c]).rotate_left(12);
    state[a] = state[a].wrapping_add(state[b]);
    state[d] = (state[d] ^ state[a]).rotate_left(8);
    state[c] = state[c].wrapping_add(state[d]);
    state[b] = (state[b] ^ state[c]).rotate_left(7);
}

/// One block of ChaCha20 (RFC 8439 §2.3, with a 64-bit counter).
fn block(key: [u64; 4], number: u64) -> [u8; BLOCK_BYTES] {
    let mut start = [0u32; 16];
    start[..4].copy_from_slice(&[0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574]);
    for (index, word) in key.iter().enumerate() {
        start[4 + 2 * index] = *word as u32;
        start[5 + 2 * index] = (*word >> 32) as u32;
    }
    start[12] = number as u32;
    start[13] = (number >> 32) as u32;
    let mut mixed = start;
    for _ in 0..10 {
        for column in 0..4 {
            quarter(&mut mixed, [column, column + 4, column + 8, column + 12]);
        }
        for column in 0..4 {
            let at = |row: usize| 4 * row + (column + row) % 4;
            quarter(&mut mixed, [at(0), at(1), at(2), at(3)]);
        }
    }
    let mut bytes = [0; BLOCK_BYTES];
    for (chunk, (mixed, start)) in bytes.chunks_exact_mut(4).zip(mixed.iter().zip(start)) {
        chunk.copy_from_slice(&mixed.wrapping_add(start).to_le_bytes());
    }
    bytes
}

/// Fills `bytes` if the application is asking; `false` leaves them to the real source.
fn fill(bytes: &mut [u8]) -> bool {
    let Some(job) = state::job() else { return false };
    let (pointer, length) = (bytes.as_mut_ptr(), bytes.len());
    let answer = state::ask_library(|hooks| match hooks.random {
        // SAFETY: valid for writing length bytes; the function is valid by the contract of redrt_preload_install.
        Some(ask) => unsafe { ask(pointer, length) },
        None => 0,
    });
    if answer == Some(1) {
        return true;
    }
    let (seed, rank) = job.seed();
    let key = [seed, rank, numbers::number(), FORK_PATH.load(Ordering::Relaxed)];
    for chunk in bytes.chunks_mut(BLOCK_BYTES) {
        let number = BLOCKS.get();
        BLOCKS.set(number + 1);
        chunk.copy_from_slice(&block(key, number)[..chunk.len()]);
    }
    true
}

/// Like [`fill`], for a buffer of a C program.
///
/// # Safety
/// `buffer` is valid for writing `length` bytes, or null.
unsafe fn fill_buffer(buffer: *mut c_void, length: usize) -> bool {
    if buffer.is_null() || length == 0 {
        return false;
    }
    // SAFETY: valid for writing, by contract; zeroed first, as a slice may not be uninitialised.
    let bytes = unsafe {
        std::ptr::write_bytes(buffer.cast::<u8>(), 0, length);
        std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length)
    };
    fill(bytes)
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut c_void, length: usize, flags: u32) -> isize {
    // SAFETY: - the arguments are valid for `getrandom`, by contract.
    if unsafe { fill_buffer(buffer, length) } {
        return length as isize;
    }
    let arguments = [buffer as i64, length as i64, i64::from(flags), 0, 0, 0];
    // SAFETY: - the arguments are valid for `getrandom`, by contract.
    real::with_errno(unsafe { real::system_call(libc::SYS_getrandom, arguments) }) as isize
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getentropy(buffer: *mut c_void, length: usize) -> c_int {
    // A longer request is an error, which the C library reports.
    // SAFETY: - the arguments are valid for `getentropy`, by contract.
    if length <= 256 && unsafe { fill_buffer(buffer, length) } {
        return 0;
    }
    next!(getentropy(buffer => *mut c_void, length => usize) -> c_int, -1)
}

fn word() -> Option<u32> {
    let mut bytes = [0; 4];
    fill(&mut bytes).then(|| u32::from_le_bytes(bytes))
}

/// Replaces the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn arc4random() -> u32 {
    word().unwrap_or_else(|| next!(arc4random() -> u32, 0))
}

/// Replaces the C library's.
///
/// # Safety
/// As for the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arc4random_buf(buffer: *mut c_void, length: usize) {
    // SAFETY: - the arguments are valid for `arc4random_buf`, by contract.
    if !unsafe { fill_buffer(buffer, length) } {
        next!(arc4random_buf(buffer => *mut c_void, length => usize) -> (), ());
    }
}

/// Replaces the C library's.
#[unsafe(no_mangle)]
pub extern "C" fn arc4random_uniform(bound: u32) -> u32 {
    if bound == 0 {
        return 0;
    }
    // Below this threshold the first numbers would come up more often than the others.
    let threshold = bound.wrapping_neg() % bound;
    loop {
        match word() {
            Some(word) if word >= threshold => return word % bound,
            Some(_) => {}
            None => return next!(arc4random_uniform(bound => u32) -> u32, 0),
        }
    }
}

/// A file with random bytes, when `path` is the random device and the application is asking.
///
/// # Safety
/// `path` is null or a zero-terminated string.
pub unsafe fn open_device(path: *const c_char, flags: c_int) -> Option<c_int> {
    if path.is_null() {
        return None;
    }
    // SAFETY: a zero-terminated string, by contract.
    let path = unsafe { CStr::from_ptr(path) };
    let is_device = path == c"/dev/urandom" || path == c"/dev/random";
    if !is_device || flags & libc::O_ACCMODE != libc::O_RDONLY {
        return None;
    }
    state::job()?;
    let memfd_flags = if flags & libc::O_CLOEXEC != 0 { libc::MFD_CLOEXEC } else { 0 };
    // SAFETY: the name is zero-terminated.
    let fd = unsafe { libc::memfd_create(c"urandom".as_ptr(), memfd_flags) };
    if fd < 0 {
        return None;
    }
    let mut bytes = [0; 4096];
    for offset in (0..DEVICE_BYTES).step_by(bytes.len()) {
        // SAFETY: bytes is valid for reading its length.
        let written = fill(&mut bytes)
            && unsafe { libc::pwrite(fd, bytes.as_ptr().cast(), bytes.len(), offset as i64) } == bytes.len() as isize;
        if !written {
            // SAFETY: - the descriptor was made above, and no one else has it.
            unsafe { libc::close(fd) };
            return None;
        }
    }
    Some(fd)
}
