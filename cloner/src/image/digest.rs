//! The digest of all memory, by which a copy is known to be equal to its source: a sum over pages.

use twox_hash::XxHash3_64;

/// A page's part of the digest of all memory. Zeros count only where something else would be otherwise.
#[must_use]
pub fn page_hash(bytes: &[u8], address: u64, file_backed: bool) -> u64 {
    if !file_backed && bytes.iter().all(|byte| *byte == 0) { 0 } else { XxHash3_64::oneshot_with_seed(address, bytes) }
}

/// A page's part of the digest of shared memory.
#[must_use]
pub fn object_page_hash(id: u64, at: u64, page: &[u8]) -> u64 {
    page_hash(page, at ^ id.rotate_left(32), false)
}
