//! Basic types: the elements that all datatypes are made of.

use sdc_detect::Element;

/// A basic type: its representation in memory, and the operations that are defined on it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Basic {
    /// Representation in memory.
    pub scalar: Scalar,
    /// Class, which decides the reductions that are defined on it.
    pub class: Class,
    /// Size in the representation `external32` (MPI-5.0 section 14.5.2).
    pub external_size: u8,
}

/// An element, seen by a reduction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operand {
    /// A basic element.
    Basic(Basic),
    /// A value and its index, laid out as a C struct of the two.
    Pair {
        /// The value.
        value: Basic,
        /// The index.
        index: Basic,
    },
}

/// The representation in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scalar {
    /// Signed, 1 byte.
    I8,
    /// Unsigned, 1 byte.
    U8,
    /// Signed, 2 bytes.
    I16,
    /// Unsigned, 2 bytes.
    U16,
    /// Signed, 4 bytes.
    I32,
    /// Unsigned, 4 bytes.
    U32,
    /// Signed, 8 bytes.
    I64,
    /// Unsigned, 8 bytes.
    U64,
    /// Signed, 16 bytes.
    I128,
    /// IEEE half.
    F16,
    /// IEEE single.
    F32,
    /// IEEE double.
    F64,
    /// C `long double`: x87 extended in 16 bytes on x86-64, IEEE quadruple elsewhere.
    LongDouble,
    /// IEEE quadruple: gfortran's REAL*16.
    F128,
}

/// Classes of types in the definition of the reductions (MPI-5.0 section 6.9.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// C integers.
    Integer,
    /// Fortran integers.
    FortranInteger,
    /// `MPI_AINT`, `MPI_OFFSET`, `MPI_COUNT`.
    MultiLanguage,
    /// Floating point.
    Float,
    /// Complex: two scalars.
    Complex,
    /// C's and Fortran's truth values.
    Logical,
    /// `MPI_BYTE`.
    Byte,
    /// `MPI_CHAR`: a character. The standard defines no reductions on it; MPICH and Open MPI reduce it as an integer,
    /// and programs do so.
    Char,
    /// Other characters: no reductions.
    Text,
    /// `MPI_PACKED`: no reductions, and it fits data of any type.
    Packed,
}

impl Scalar {
    /// Bytes in memory.
    #[must_use]
    pub const fn size(self) -> u64 {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
            Self::I128 | Self::LongDouble | Self::F128 => 16,
        }
    }
}

impl Basic {
    /// Form in which a report shows payloads of this type: a complex number as its two parts.
    #[must_use]
    pub fn element(&self) -> Element {
        match self.scalar {
            Scalar::I8 => Element::I8,
            Scalar::U8 => Element::U8,
            Scalar::I16 => Element::I16,
            Scalar::U16 => Element::U16,
            Scalar::I32 => Element::I32,
            Scalar::U32 => Element::U32,
            Scalar::I64 => Element::I64,
            Scalar::U64 => Element::U64,
            Scalar::F32 => Element::F32,
            Scalar::F64 => Element::F64,
            Scalar::I128 | Scalar::F16 | Scalar::LongDouble | Scalar::F128 => Element::Unknown,
        }
    }

    /// A basic type whose external32 representation has as many bytes as that in memory.
    #[must_use]
    pub const fn new(scalar: Scalar, class: Class) -> Self {
        let doubled = if matches!(class, Class::Complex) { 2 } else { 1 };
        Self { scalar, class, external_size: (scalar.size() * doubled) as u8 }
    }

    /// The same with another number of bytes in external32.
    #[must_use]
    pub const fn external(self, external_size: u8) -> Self {
        Self { external_size, ..self }
    }

    /// Bytes in memory.
    #[must_use]
    pub const fn size(self) -> u64 {
        self.scalar.size() * if matches!(self.class, Class::Complex) { 2 } else { 1 }
    }

    /// Alignment in a C struct.
    #[must_use]
    pub const fn alignment(self) -> i64 {
        self.scalar.size() as i64
    }
}
