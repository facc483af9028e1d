//! How much of a test's range is tried: `scripts/test.sh` is for every change and takes a part, `scripts/test.sh --all`
//! takes all of it.

/// Set by `scripts/test.sh --all`.
const VARIABLE: &str = "REDRT_ALL";

/// The first for the gate, the second where all is tried.
#[must_use]
pub fn breadth<T>(gate: T, all: T) -> T {
    if std::env::var_os(VARIABLE).is_some() { all } else { gate }
}
