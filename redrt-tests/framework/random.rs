//! A seeded generator for choosing faults.

/// The generator splitmix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts from this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed in the environment (`REDRT_SEED`), else 1.
    #[must_use]
    pub fn from_environment() -> Self {
        Self(seed_from_environment())
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 1 to `last`.
    pub fn from_one_to(&mut self, last: u64) -> u64 {
        1 + self.draw() % last.max(1)
    }

    /// Draws one of these.
    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[(self.draw() % all.len() as u64) as usize]
    }
}

fn seed_from_environment() -> u64 {
    let Ok(text) = std::env::var("REDRT_SEED") else { return 1 };
    text.parse().unwrap_or_else(|_| panic!("REDRT_SEED is not a number: {text}"))
}
