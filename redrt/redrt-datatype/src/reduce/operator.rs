//! The operators, and the classes of types on which each is defined.

use crate::basic::Class;

/// An operator of the standard. Messages to the user show the variants' names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    /// `MPI_SUM`. Integers wrap around.
    Sum,
    /// `MPI_PROD`. Integers wrap around.
    Product,
    /// `MPI_MIN`.
    Minimum,
    /// `MPI_MAX`.
    Maximum,
    /// `MPI_BAND`.
    BitAnd,
    /// `MPI_BOR`.
    BitOr,
    /// `MPI_BXOR`.
    BitXor,
    /// `MPI_LAND`.
    LogicalAnd,
    /// `MPI_LOR`.
    LogicalOr,
    /// `MPI_LXOR`.
    LogicalXor,
    /// `MPI_MINLOC`: of equal values, the one with the smaller index.
    MinimumLocation,
    /// `MPI_MAXLOC`: of equal values, the one with the smaller index.
    MaximumLocation,
}

/// Availability of an operator on a kind of element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Support {
    /// The operator can be applied.
    Available,
    /// The standard does not define it on such elements.
    Undefined,
    /// The standard defines it, but this machine has no arithmetic for it.
    Unavailable,
}

impl Operator {
    /// All operators.
    pub const ALL: [Self; 12] = [
        Self::Sum,
        Self::Product,
        Self::Minimum,
        Self::Maximum,
        Self::BitAnd,
        Self::BitOr,
        Self::BitXor,
        Self::LogicalAnd,
        Self::LogicalOr,
        Self::LogicalXor,
        Self::MinimumLocation,
        Self::MaximumLocation,
    ];

    /// True when the operands are pairs of a value and an index.
    #[inline]
    pub(super) fn is_location(self) -> bool {
        matches!(self, Self::MinimumLocation | Self::MaximumLocation)
    }

    /// MPI-5.0 §6.9.2: the classes of types on which each operator is defined.
    #[inline]
    pub(super) fn is_defined_on(self, class: Class) -> bool {
        use Class::{Byte, Char, Complex, Float, FortranInteger, Integer, Logical, MultiLanguage};
        let is_integer = matches!(class, Integer | FortranInteger | MultiLanguage | Char);
        match self {
            Self::Minimum | Self::Maximum => is_integer || class == Float,
            Self::Sum | Self::Product => is_integer || matches!(class, Float | Complex),
            Self::BitAnd | Self::BitOr | Self::BitXor => is_integer || class == Byte,
            Self::LogicalAnd | Self::LogicalOr | Self::LogicalXor => is_integer || class == Logical,
            Self::MinimumLocation | Self::MaximumLocation => false,
        }
    }
}
