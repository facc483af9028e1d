//! Chance from a seed: SplitMix64, so that a seed means the same run everywhere.

/// A stream of numbers from a seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A stream of its own for one part of a run: more choices of that part leave the others as they were.
    #[must_use]
    pub fn stream(seed: u64, part: &str) -> Self {
        let key = part.bytes().fold(0, |key: u64, byte| key.rotate_left(8) ^ u64::from(byte));
        Self(mix(seed ^ key))
    }

    /// Draws a number of 64 bits.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end as u64) as usize
    }

    /// A number of this range, which is not empty.
    pub fn within(&mut self, range: std::ops::Range<u64>) -> u64 {
        range.start + self.number() % (range.end - range.start)
    }

    /// Returns true in `percent` of 100 cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns true in one of `cases`.
    pub fn one_in(&mut self, cases: usize) -> bool {
        self.below(cases) == 0
    }

    /// Draws one of these.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Puts the items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// Spreads the bits of a number.
#[must_use]
pub fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_the_numbers_of_splitmix64() {
        let mut random = Random::new(1_234_567);
        assert_eq!([(); 2].map(|()| random.number()), [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn parts_of_a_run_have_streams_of_their_own() {
        let first = |part| Random::stream(7, part).number();
        assert_ne!(first("network"), first("faults"));
        assert_ne!(first("network"), Random::stream(8, "network").number());
        assert_eq!(first("network"), first("network"));
    }

    #[test]
    fn numbers_are_of_the_range_and_all_of_it_is_drawn() {
        let mut random = Random::new(1);
        let mut seen = [false; 10];
        for _ in 0..1000 {
            seen[random.within(3..10) as usize] = true;
        }
        assert_eq!(seen, [false, false, false, true, true, true, true, true, true, true]);
    }

    #[test]
    fn a_shuffle_keeps_all_items() {
        let mut items: Vec<_> = (0..20).collect();
        Random::new(2).shuffle(&mut items);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert!(items.into_iter().eq(0..20));
    }
}
