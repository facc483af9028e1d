//! Share of a test's range that is tried: `scripts/test.sh` runs on every change and takes a part, `scripts/test.sh
//! --all` takes all of it. And how long a test is waited for.

/// Set by `scripts/test.sh --all`.
const VARIABLE: &str = "REDRT_ALL";

/// Returns `gate` for the gate, `all` where the whole range is tried.
#[must_use]
pub fn breadth<T>(gate: T, all: T) -> T {
    if std::env::var_os(VARIABLE).is_some() { all } else { gate }
}

/// Factor of the times after which a job is taken for hung: `REDRT_SLOWNESS`, for machines that are emulated.
#[must_use]
pub fn slowness() -> u32 {
    let factor = std::env::var("REDRT_SLOWNESS").ok().map(|text| text.parse().expect("REDRT_SLOWNESS is a number"));
    factor.unwrap_or(1)
}
