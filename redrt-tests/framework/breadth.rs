//! Share of a test's range that is tried: `scripts/test.sh` runs on every change and takes a part, `scripts/test.sh
//! --all` takes all of it.

/// Set by `scripts/test.sh --all`.
const VARIABLE: &str = "REDRT_ALL";

/// Returns `gate` for the gate, `all` where the whole range is tried.
#[must_use]
pub fn breadth<T>(gate: T, all: T) -> T {
    if std::env::var_os(VARIABLE).is_some() { all } else { gate }
}
