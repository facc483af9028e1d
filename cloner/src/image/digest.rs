//! Digest of all memory, which shows that a copy equals its source. It is a sum over pages, so their order is free.

use twox_hash::XxHash3_64;

/// Contribution of one page. Zeros contribute nothing, unless a file would show something else there.
#[must_use]
pub fn page_hash(bytes: &[u8], address: u64, file_backed: bool) -> u64 {
    if !file_backed && bytes.iter().all(|byte| *byte == 0) { 0 } else { XxHash3_64::oneshot_with_seed(address, bytes) }
}

/// Contribution of one page of a shared object.
#[must_use]
pub fn object_page_hash(id: u64, at: u64, page: &[u8]) -> u64 {
    page_hash(page, at ^ id.rotate_left(32), false)
}
