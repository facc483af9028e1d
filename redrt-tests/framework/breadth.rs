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

/// Bound on that factor for a machine with other work.
const BUSYNESS_MAX: f64 = 8.0;

/// Factor of those times on a machine that has more to do than its processors can: threads that want to run, in the
/// last minute, by processor. A job whose processes wait for each other's messages is slowed down by more than its
/// share: each hand-over waits for the time slices of others.
pub(crate) fn busyness() -> f64 {
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    let load = load.and_then(|load| load.split_ascii_whitespace().next()?.parse::<f64>().ok()).unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    (load / processors).clamp(1.0, BUSYNESS_MAX)
}
