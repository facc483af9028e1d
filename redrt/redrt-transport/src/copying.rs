//! Copies of messages between a program's memory and memory that processes share.
//!
//! `memcpy` of the C library copies more than some 2 KiB by `rep movsb` where the processor says that this is fast. On
//! some processors that say so it is ten times slower than a loop when the destination begins a few bytes behind the
//! source, counted within their pages (glibc bug 30994). Messages do just that: buffers of `malloc` begin 16 bytes
//! behind a page, shared memory at one.

/// Length in bytes from which the loop is used. Shorter copies take no longer in `memcpy`.
const LONG: usize = 1536;

/// Copies `length` bytes. The two may overlap.
///
/// # Safety
/// `from` is valid for reads, and `to` for writes, of `length` bytes.
#[inline(always)]
pub unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
    if length < LONG {
        // SAFETY: - valid for reads and writes: the caller's duty above.
        unsafe { std::ptr::copy(from, to, length) };
        return;
    }
    // SAFETY: - valid for reads and writes: the caller's duty above.
    unsafe { copy_long(from, to, length) };
}

#[inline(never)]
unsafe fn copy_long(from: *const u8, to: *mut u8, length: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        // The loop goes forward, in blocks: no destination may lie within a source that is still to be read.
        let overlaps = to.addr().wrapping_sub(from.addr()) < length || from.addr().wrapping_sub(to.addr()) < length;
        if !overlaps && std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: - valid for reads and writes: the caller's duty above. They do not overlap, are as long as a
            //           block, and the processor has AVX2: all checked. A copy of this process goes to processors that
            //           have it, too.
            unsafe { in_blocks(from, to, length) };
            return;
        }
    }
    // SAFETY: - valid for reads and writes: the caller's duty above.
    unsafe { std::ptr::copy(from, to, length) };
}

/// Bytes that are copied at once.
#[cfg(target_arch = "x86_64")]
const BLOCK: usize = 128;

/// Copies `length` bytes, at least [`BLOCK`].
///
/// # Safety
/// `from` is valid for reads, and `to` for writes, of `length` bytes; they do not overlap.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn in_blocks(from: *const u8, to: *mut u8, length: usize) {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_storeu_si256};
    const WORDS: usize = BLOCK / size_of::<__m256i>();
    let block = |at: usize| {
        let (from, to) = (from.wrapping_add(at).cast::<__m256i>(), to.wrapping_add(at).cast::<__m256i>());
        // SAFETY: - a block that ends within the length: valid for reads, by the caller's duty above.
        let words: [__m256i; WORDS] =
            std::array::from_fn(|word| unsafe { _mm256_loadu_si256(from.wrapping_add(word)) });
        for (word, bytes) in words.into_iter().enumerate() {
            // SAFETY: - within the same block of the destination: valid for writes, likewise.
            unsafe { _mm256_storeu_si256(to.wrapping_add(word), bytes) };
        }
    };
    let last = length - BLOCK;
    for at in (0..last).step_by(BLOCK) {
        block(at);
    }
    // Some bytes of the last block may be copied for the second time.
    block(last);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    #[test]
    fn all_bytes_are_copied_and_no_others() {
        for length in [0, 1, 127, LONG - 1, LONG, LONG + 1, LONG + 127, LONG + 128, 8191, 8192, 70_001] {
            for (from, to) in [(0, 0), (0, 16), (16, 0), (3, 1), (1, 3)] {
                let source = numbered(length + 64);
                let mut copied = vec![0xa5; length + 64];
                // SAFETY: - both vectors have 64 bytes more than are copied, and at most 16 are before.
                unsafe { copy(source.as_ptr().add(from), copied.as_mut_ptr().add(to), length) };
                assert_eq!(copied[to..to + length], source[from..from + length], "{length} bytes");
                assert!(copied[..to].iter().chain(&copied[to + length..]).all(|byte| *byte == 0xa5), "{length} bytes");
            }
        }
    }

    #[test]
    fn source_and_destination_may_overlap() {
        for length in [64, LONG, 10_000] {
            for shift in [1, 16, 100, 129, length - 1] {
                let before = numbered(length + shift);
                let (mut later, mut earlier) = (before.clone(), before.clone());
                // SAFETY: - the vector has as many bytes behind the shift.
                unsafe { copy(later.as_ptr(), later.as_mut_ptr().add(shift), length) };
                assert_eq!(later[shift..], before[..length], "{length} bytes, {shift} later");
                // SAFETY: - as above.
                unsafe { copy(earlier.as_ptr().add(shift), earlier.as_mut_ptr(), length) };
                assert_eq!(earlier[..length], before[shift..], "{length} bytes, {shift} earlier");
            }
        }
    }
}
