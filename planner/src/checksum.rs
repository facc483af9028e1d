//! Space for checksums of a square matrix (thesis on DINO, section 4.5.1, figures 4.12 and 4.14).

use crate::Version;

/// Additional elements of an n × n matrix with one row and one column of sums: `2n + 1`.
#[must_use]
pub fn extra_elements(n: u64) -> u64 {
    2 * n + 1
}

/// Additional elements if each k × k block has a row and a column of sums: `n²/k² + 2n²/k`. The published second term
/// is `2n/k`, which contradicts the thesis's own figure.
#[must_use]
pub fn extra_elements_by_block(n: u64, k: u64, version: Version) -> u64 {
    let blocks = (n / k) * (n / k);
    match version {
        Version::AsPublished => blocks + 2 * n / k,
        Version::Corrected => blocks + 2 * n * n / k,
    }
}
