//! Completion time of a chain of protected regions under memory faults (thesis on DINO, section 4.6, figure 4.22). The
//! chain has two matrix products, C = A·B and E = C·D. Data is checked at its last use, and a region that cannot be
//! corrected in place is computed again.

use fastrand::Rng;

/// Times of the regions, in one unit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Chain {
    /// Time of the first product.
    pub first: f64,
    /// Time of the second product.
    pub second: f64,
    /// Time of writing the result.
    pub store: f64,
}

const A: u32 = 0;
const B: u32 = 1;
const C: u32 = 2;
const D: u32 = 3;
const E: u32 = 4;

impl Chain {
    /// Matrices of the thesis: 43.1 s in all, of which each product takes 21.05 s.
    pub const PUBLISHED: Self = Self { first: 21.05, second: 21.05, store: 1.0 };

    /// Mean time relative to that without faults. Faults come at `rate`, uniformly distributed over the five matrices.
    #[must_use]
    pub fn stretch(&self, rate: f64, seed: u64, runs: u32) -> f64 {
        let mut rng = Rng::with_seed(seed);
        let total: f64 = (0..runs).map(|_| self.run(rate, &mut rng)).sum();
        total / f64::from(runs) / (self.first + self.second + self.store)
    }

    fn run(&self, rate: f64, rng: &mut Rng) -> f64 {
        let mut time = 0.0;
        // A fault in an input is found at its last use and corrected, and the product is repeated. A fault in C stays
        // for the next region.
        let mut c_is_hit = loop {
            let hit = faults(rate, self.first, rng);
            time += self.first;
            if !hit[A as usize] && !hit[B as usize] {
                break hit[C as usize];
            }
        };
        let mut e_is_hit = loop {
            let hit = faults(rate, self.second, rng);
            time += self.second;
            let again = c_is_hit || hit[C as usize] || hit[D as usize];
            c_is_hit = false;
            if !again {
                break hit[E as usize];
            }
        };
        loop {
            let hit = faults(rate, self.store, rng);
            time += self.store;
            if !(e_is_hit || hit[E as usize]) {
                return time;
            }
            e_is_hit = false;
        }
    }
}

/// Matrices that are hit within `time`.
fn faults(rate: f64, time: f64, rng: &mut Rng) -> [bool; 5] {
    let mut hit = [false; 5];
    let mut gap = || -(1.0 - rng.f64()).ln() / rate;
    let mut at = gap();
    let mut count = 0;
    while at < time {
        count += 1;
        at += gap();
    }
    for _ in 0..count {
        hit[rng.usize(..5)] = true;
    }
    hit
}
