//! Reliability of spheres without repair, and the time of a job that starts over when one is lost (thesis on DINO,
//! section 3.8; Elliott, Duda).

use crate::Version;

/// Probability that no sphere is lost in `time`: `(1 - (T/θ)^r)^e` (eq. E3).
///
/// The exponent is the number of spheres n. The published one is n·r, the number of nodes. A node fails with
/// probability T/θ, the linear approximation of the papers; [`crate::spheres`] is exact.
#[must_use]
pub fn reliability(time: f64, mttf: f64, ranks: f64, degree: f64, version: Version) -> f64 {
    log_reliability(time, mttf, ranks, degree, version).exp()
}

fn log_reliability(time: f64, mttf: f64, ranks: f64, degree: f64, version: Version) -> f64 {
    let exponent = match version {
        Version::AsPublished => ranks * degree,
        Version::Corrected => ranks,
    };
    exponent * (-(time / mttf).min(1.0).powf(degree)).ln_1p()
}

/// Failure rate of the job that corresponds to this reliability, `-ln(R)/T` (eq. E2; the thesis calls it an MTTF).
#[must_use]
pub fn failure_rate(time: f64, mttf: f64, ranks: f64, degree: f64, version: Version) -> f64 {
    -log_reliability(time, mttf, ranks, degree, version) / time
}

/// Expected time of `work` that starts over after each failure, which costs `relaunch` (eq. E1).
#[must_use]
pub fn duda(work: f64, rate: f64, relaunch: f64) -> f64 {
    if rate <= 0.0 {
        return work;
    }
    (relaunch + 1.0 / rate) * (rate * work).exp_m1()
}

/// Expected time of a replicated job without cloning, whose undisturbed run takes `redundant`.
#[must_use]
pub fn time_without_cloning(
    redundant: f64,
    mttf: f64,
    ranks: f64,
    degree: f64,
    relaunch: f64,
    version: Version,
) -> f64 {
    duda(redundant, failure_rate(redundant, mttf, ranks, degree, version), relaunch)
}

/// Number of ranks in `low..high` at which `difference` changes its sign, to within one. `None` if both ends have the
/// same sign.
#[must_use]
pub fn crossover(mut low: f64, mut high: f64, difference: impl Fn(f64) -> f64) -> Option<f64> {
    let sign = difference(low).signum();
    if sign == difference(high).signum() {
        return None;
    }
    while high - low > 0.5 {
        let middle = f64::midpoint(low, high);
        if difference(middle).signum() == sign { low = middle } else { high = middle }
    }
    Some(f64::midpoint(low, high))
}
