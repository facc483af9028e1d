//! Draw of a fault in a thread: the number of steps, and the bit that flips. Pure.

use replication_manager::Random;

/// Maximum number of steps. The library may wait in a loop without returning to the program.
pub const STEPS_MAX: u64 = 1 << 17;
/// Range above the stack pointer, in words of 8 bytes.
const STACK_WORDS: u64 = 512;
/// Ranges of the drawn magnitude. Numbers are drawn evenly by magnitude: most bugs are near, and few instructions far.
const MAGNITUDES: u64 = 15;
const MAGNITUDES_IN_PROGRAM: u64 = 12;
/// Flag bits that programs compute with: carry, parity, adjust, zero, sign, direction, overflow.
const FLAGS: [u32; 7] = [0, 2, 4, 6, 7, 10, 11];

/// A drawn fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aim {
    /// Steps before the flip.
    pub walk: Walk,
    /// Place of the flip.
    pub spot: Spot,
}

/// Number of instructions that the thread executes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walk {
    pub instructions: u64,
    /// If true, only instructions of the program's own file count: the thread stops in the program's code.
    pub in_program: bool,
}

/// A bit of a thread's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spot {
    /// A general register, or the instruction pointer.
    General {
        /// Index in [`super::registers::GENERAL`].
        register: usize,
        bit: u32,
    },
    Flags {
        bit: u32,
    },
    Vector {
        register: usize,
        /// Bit of the lower 128.
        bit: u32,
    },
    Stack {
        /// Distance from the stack pointer, in words of 8 bytes.
        word: u64,
        bit: u32,
    },
}

impl Aim {
    /// Derives the fault from `drawn`.
    pub fn of(drawn: u64) -> Self {
        let mut random = Random::new(drawn);
        let mut below = |count: u64| random.draw() % count;
        let in_program = below(2) == 0;
        let magnitude = 1 << below(if in_program { MAGNITUDES_IN_PROGRAM } else { MAGNITUDES });
        let instructions = magnitude + below(magnitude);
        // Half of the flips hit general registers and flags, which every instruction uses.
        let spot = match below(16) {
            0..=6 => {
                let register = below(super::registers::GENERAL.len() as u64) as usize;
                Spot::General { register, bit: below(64) as u32 }
            }
            7 => Spot::Flags { bit: FLAGS[below(FLAGS.len() as u64) as usize] },
            8 | 9 => Spot::Vector { register: below(16) as usize, bit: below(128) as u32 },
            _ => Spot::Stack { word: below(STACK_WORDS), bit: below(64) as u32 },
        };
        Self { walk: Walk { instructions, in_program }, spot }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_same_draw_is_the_same_flip_and_all_kinds_are_drawn() {
        let aims: Vec<_> = (0..4000).map(Aim::of).collect();
        assert_eq!(aims, (0..4000).map(Aim::of).collect::<Vec<_>>());
        let general: BTreeSet<_> = aims
            .iter()
            .filter_map(|aim| match aim.spot {
                Spot::General { register, .. } => Some(register),
                _ => None,
            })
            .collect();
        assert_eq!(general.len(), super::super::registers::GENERAL.len());
        for is_of_kind in [
            |spot: Spot| matches!(spot, Spot::Flags { .. }),
            |spot: Spot| matches!(spot, Spot::Vector { .. }),
            |spot: Spot| matches!(spot, Spot::Stack { .. }),
        ] {
            assert!(aims.iter().filter(|aim| is_of_kind(aim.spot)).count() > 100);
        }
        let in_program = aims.iter().filter(|aim| aim.walk.in_program).count();
        assert!((1500..2500).contains(&in_program), "{in_program}");
        assert!(aims.iter().all(|aim| (1..STEPS_MAX).contains(&aim.walk.instructions)));
    }
}
