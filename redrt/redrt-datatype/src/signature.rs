//! Type signatures, made comparable: the basic elements of a message in order, as a number of bytes and a digest.
//!
//! A message is a word whose letters are its basic elements. The digest of a word is a polynomial modulo a prime:
//! appending a word takes one multiplication, and repeating it takes as many as the count has bits. So no walk over a
//! million elements of a derived type is needed, and the same elements have the same digest for every construction.

use crate::basic::{Basic, Class};
use serde::{Deserialize, Serialize};

/// The basic elements of a message, made comparable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Signature {
    /// Size of the message.
    pub bytes: u64,
    /// Digest of its basic elements; `None` for `MPI_PACKED`, which fits all.
    pub elements: Option<u64>,
}

impl Signature {
    /// True when a receiver that expects `other` may be sent this, as far as types decide (MPI-5.0 §3.3.1).
    #[must_use]
    pub fn has_types_of(&self, other: &Self) -> bool {
        match (self.elements, other.elements) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        }
    }
}

/// A Mersenne prime, so that remainders are cheap; small enough for products in 128 bits.
const PRIME: u64 = (1 << 61) - 1;
/// Argument of the polynomials.
const POINT: u64 = 0x1357_9bdf_0246_8ace % PRIME;

fn times(left: u64, right: u64) -> u64 {
    (u128::from(left) * u128::from(right) % u128::from(PRIME)) as u64
}

fn plus(left: u64, right: u64) -> u64 {
    // Both are below 2^61.
    (left + right) % PRIME
}

/// A word of basic elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Word {
    digest: u64,
    /// The point to the power of the word's length.
    power: u64,
}

impl Word {
    /// The word without elements.
    pub(crate) const EMPTY: Self = Self { digest: 0, power: 1 };

    /// The word of one element.
    pub(crate) fn of(basic: Basic) -> Self {
        // Integers of C, of Fortran and of both fit each other (MPI-5.0 §19.3.9).
        let class = match basic.class {
            Class::Integer | Class::FortranInteger | Class::MultiLanguage => 1,
            Class::Float => 2,
            Class::Complex => 3,
            Class::Logical => 4,
            Class::Byte => 5,
            Class::Char | Class::Text | Class::Packed => 6,
        };
        Self { digest: class << 8 | (basic.scalar as u64 + 1), power: POINT }
    }

    /// This word followed by another.
    pub(crate) fn then(self, next: Self) -> Self {
        Self { digest: plus(times(self.digest, next.power), next.digest), power: times(self.power, next.power) }
    }

    /// This word, `count` times.
    pub(crate) fn repeated(self, mut count: u64) -> Self {
        let (mut all, mut square) = (Self::EMPTY, self);
        while count > 0 {
            if count & 1 == 1 {
                all = all.then(square);
            }
            square = square.then(square);
            count >>= 1;
        }
        all
    }

    /// A number that differs, in all likelihood, from that of any other word.
    pub(crate) fn digest(self) -> u64 {
        self.digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::basic::Scalar;
    use proptest::prelude::*;

    const LETTERS: [Basic; 4] = [
        Basic::new(Scalar::I32, Class::Integer),
        Basic::new(Scalar::F64, Class::Float),
        Basic::new(Scalar::F64, Class::Complex),
        Basic::new(Scalar::U8, Class::Byte),
    ];

    fn spelled(letters: &[usize]) -> Word {
        letters.iter().fold(Word::EMPTY, |word, letter| word.then(Word::of(LETTERS[*letter])))
    }

    proptest! {
        #[test]
        fn words_are_the_same_however_they_are_put_together(
            first in prop::collection::vec(0..4usize, 0..6), second in prop::collection::vec(0..4usize, 0..6),
            count in 0..7u64,
        ) {
            let once = [&first[..], &second].concat();
            let many = once.repeat(count as usize);
            prop_assert_eq!(spelled(&first).then(spelled(&second)).repeated(count), spelled(&many));
        }

        #[test]
        fn other_words_have_other_digests(
            first in prop::collection::vec(0..4usize, 0..6), second in prop::collection::vec(0..4usize, 0..6),
        ) {
            prop_assert_eq!(first == second, spelled(&first) == spelled(&second));
        }
    }

    #[test]
    fn languages_share_their_integers() {
        let of_c = Word::of(Basic::new(Scalar::I32, Class::Integer));
        assert_eq!(of_c, Word::of(Basic::new(Scalar::I32, Class::FortranInteger)));
        assert_ne!(of_c, Word::of(Basic::new(Scalar::U32, Class::Integer)));
        assert_ne!(of_c, Word::of(Basic::new(Scalar::I32, Class::Logical)));
    }
}
