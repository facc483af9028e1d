//! Reductions (MPI-5.0 section 6.9.2): the operators of the standard, on elements in memory.
//!
//! In: an [`Operator`], the kind of element, and two buffers of elements. Out: the second buffer, combined with the
//! first. Functions of the program are unknown here.
//!
//! ```text
//!  operator ── kernel ──┬── integers, f32, f64, complex: loops of each
//!     │                 └── wide_float: formats without a Rust type, by arithmetic
//!     └── pair: a value and its index
//! ```

mod arithmetic;
mod each;
mod kernel;
mod operator;
mod pair;
#[cfg(test)]
mod tests;
mod wide_float;

pub use operator::{Operator, Support};

use crate::basic::{Basic, Operand, Scalar};

impl Operator {
    /// Availability of the operator on elements of this kind. Callers check it before any communication.
    #[must_use]
    #[inline]
    pub fn support(self, operand: Operand) -> Support {
        let is_defined = match operand {
            Operand::Basic(basic) => self.is_defined_on(basic.class),
            Operand::Pair { value, index } => self.is_location() && pair::is_known(value.scalar, index.scalar),
        };
        match operand {
            _ if !is_defined => Support::Undefined,
            Operand::Basic(basic) if !self.is_available(basic) => Support::Unavailable,
            _ => Support::Available,
        }
    }

    /// Sums and products need arithmetic, which a machine may lack for formats without a Rust type.
    fn is_available(self, basic: Basic) -> bool {
        let needs_arithmetic = matches!(self, Self::Sum | Self::Product);
        let is_wide = matches!(basic.scalar, Scalar::F16 | Scalar::LongDouble | Scalar::F128);
        !needs_arithmetic || !is_wide || wide_float::has_arithmetic(basic.scalar)
    }

    /// `in_out[i] = input[i] op in_out[i]` for `count` elements at any alignment. Both buffers hold as many.
    ///
    /// # Panics
    /// When [`Operator::support`] is not [`Support::Available`].
    #[inline]
    pub fn apply(self, operand: Operand, count: usize, input: *const u8, in_out: *mut u8) {
        match operand {
            Operand::Basic(basic) => kernel::reduce(self, basic, count, input, in_out),
            Operand::Pair { value, index } => {
                pair::reduce(self, (value.scalar, index.scalar), count, input, in_out);
            }
        }
    }
}
