//! Probabilities in a vulnerability window, the time in which a sphere lacks a replica.

/// Probability that a given node fails in `window`.
#[must_use]
pub fn loss(window: f64, mttf: f64) -> f64 {
    -(-window / mttf).exp_m1()
}

/// Probability that one corruption in the job's lifetime hits a window, `w/(r N T_p)` (thesis on DINO, section 3.9.3):
/// N ranks at degree r, each of which runs for `time`.
#[must_use]
pub fn corruption(window: f64, degree: f64, ranks: f64, time: f64) -> f64 {
    window / (degree * ranks * time)
}

/// Rate at which spheres are lost whose nodes are replaced within `window` of their failure: `n r λ (λ w)^(r-1)`, the
/// first order in λw. At r = 1 it is the rate of failures.
///
/// The r-1 others must die, in any order, before the first replacement is there. For r = 2 it is `n·2λ·λw`.
#[must_use]
pub fn sphere_loss_rate(spheres: f64, degree: u32, mttf: f64, window: f64) -> f64 {
    spheres * f64::from(degree) / mttf * (window / mttf).powi(degree as i32 - 1)
}
