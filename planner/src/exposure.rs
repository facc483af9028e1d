//! Probabilities of events in a vulnerability window, the time in which a sphere lacks a replica.

/// Probability that a given node fails in `window`.
#[must_use]
pub fn loss(window: f64, mttf: f64) -> f64 {
    -(-window / mttf).exp_m1()
}

/// Probability that the one corruption of a job's lifetime falls into a window, `w/(r N T_p)`, for N ranks at degree r
/// that each run for `time` (thesis on DINO, section 3.9.3).
#[must_use]
pub fn corruption(window: f64, degree: f64, ranks: f64, time: f64) -> f64 {
    window / (degree * ranks * time)
}

/// Rate at which spheres are lost, if failed nodes are replaced within `window`: `n r λ (λ w)^(r-1)`, to first order in
/// λw. At r = 1 it is the failure rate.
///
/// A sphere is lost if the other r-1 nodes fail, in any order, before the first replacement. For r = 2 the rate is
/// `n·2λ·λw`.
#[must_use]
pub fn sphere_loss_rate(spheres: f64, degree: u32, mttf: f64, window: f64) -> f64 {
    spheres * f64::from(degree) / mttf * (window / mttf).powi(degree as i32 - 1)
}
