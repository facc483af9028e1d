//! The predefined datatypes, with the sizes of C on LP64 platforms and of gfortran with its default kinds.

use super::{Datatype, Envelope};
use redrt_abi::error::Result;
use redrt_abi::fail;
use redrt_abi::handle::DatatypeHandle;
use redrt_abi::*;
use redrt_datatype::basic::Class::{
    Byte, Char, Complex, Float, FortranInteger, Integer, Logical, MultiLanguage, Packed, Text,
};
use redrt_datatype::basic::Scalar::{F16, F32, F64, F128, I8, I16, I32, I64, I128, LongDouble, U8, U16, U32, U64};
use redrt_datatype::basic::{Basic, Class, Scalar};
use redrt_datatype::{TypeMap, integer_kind, pair, real_kind, single};
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

type H = DatatypeHandle;

const fn of(scalar: Scalar, class: Class) -> Basic {
    Basic::new(scalar, class)
}

/// Types of one basic element. The size in external32 is given if it differs from the size in memory.
const BASICS: &[(H, Basic)] = &[
    (H::AINT, of(I64, MultiLanguage)),
    (H::COUNT, of(I64, MultiLanguage)),
    (H::OFFSET, of(I64, MultiLanguage)),
    (H::PACKED, of(U8, Packed)),
    (H::BYTE, of(U8, Byte)),
    (H::CHAR, of(I8, Char)),
    (H::SIGNED_CHAR, of(I8, Integer)),
    (H::UNSIGNED_CHAR, of(U8, Integer)),
    (H::WCHAR, of(I32, Text).external(2)),
    (H::SHORT, of(I16, Integer)),
    (H::INT, of(I32, Integer)),
    (H::LONG, of(I64, Integer).external(4)),
    (H::LONG_LONG, of(I64, Integer)),
    (H::UNSIGNED_SHORT, of(U16, Integer)),
    (H::UNSIGNED, of(U32, Integer)),
    (H::UNSIGNED_LONG, of(U64, Integer).external(4)),
    (H::UNSIGNED_LONG_LONG, of(U64, Integer)),
    (H::INT8_T, of(I8, Integer)),
    (H::UINT8_T, of(U8, Integer)),
    (H::INT16_T, of(I16, Integer)),
    (H::UINT16_T, of(U16, Integer)),
    (H::INT32_T, of(I32, Integer)),
    (H::UINT32_T, of(U32, Integer)),
    (H::INT64_T, of(I64, Integer)),
    (H::UINT64_T, of(U64, Integer)),
    (H::FLOAT, of(F32, Float)),
    (H::DOUBLE, of(F64, Float)),
    (H::LONG_DOUBLE, of(LongDouble, Float)),
    (H::C_FLOAT_COMPLEX, of(F32, Complex)),
    (H::C_DOUBLE_COMPLEX, of(F64, Complex)),
    (H::C_LONG_DOUBLE_COMPLEX, of(LongDouble, Complex)),
    (H::CXX_FLOAT_COMPLEX, of(F32, Complex)),
    (H::CXX_DOUBLE_COMPLEX, of(F64, Complex)),
    (H::CXX_LONG_DOUBLE_COMPLEX, of(LongDouble, Complex)),
    (H::C_BOOL, of(U8, Logical)),
    (H::CXX_BOOL, of(U8, Logical)),
    (H::LOGICAL, of(I32, Logical)),
    (H::LOGICAL1, of(I8, Logical)),
    (H::LOGICAL2, of(I16, Logical)),
    (H::LOGICAL4, of(I32, Logical)),
    (H::LOGICAL8, of(I64, Logical)),
    (H::LOGICAL16, of(I128, Logical)),
    (H::CHARACTER, of(U8, Char)),
    (H::INTEGER, of(I32, FortranInteger)),
    (H::INTEGER1, of(I8, FortranInteger)),
    (H::INTEGER2, of(I16, FortranInteger)),
    (H::INTEGER4, of(I32, FortranInteger)),
    (H::INTEGER8, of(I64, FortranInteger)),
    (H::INTEGER16, of(I128, FortranInteger)),
    (H::REAL, of(F32, Float)),
    (H::DOUBLE_PRECISION, of(F64, Float)),
    (H::REAL2, of(F16, Float)),
    (H::REAL4, of(F32, Float)),
    (H::REAL8, of(F64, Float)),
    (H::REAL16, of(F128, Float)),
    (H::COMPLEX, of(F32, Complex)),
    (H::DOUBLE_COMPLEX, of(F64, Complex)),
    (H::COMPLEX4, of(F16, Complex)),
    (H::COMPLEX8, of(F32, Complex)),
    (H::COMPLEX16, of(F64, Complex)),
    (H::COMPLEX32, of(F128, Complex)),
];

/// The value-index types: C structs of a value and an index, or Fortran arrays of two.
const PAIRS: &[(H, H, H)] = &[
    (H::FLOAT_INT, H::FLOAT, H::INT),
    (H::DOUBLE_INT, H::DOUBLE, H::INT),
    (H::LONG_INT, H::LONG, H::INT),
    (H::_2INT, H::INT, H::INT),
    (H::SHORT_INT, H::SHORT, H::INT),
    (H::LONG_DOUBLE_INT, H::LONG_DOUBLE, H::INT),
    (H::_2REAL, H::REAL, H::REAL),
    (H::_2DOUBLE_PRECISION, H::DOUBLE_PRECISION, H::DOUBLE_PRECISION),
    (H::_2INTEGER, H::INTEGER, H::INTEGER),
];

/// Values of the predefined handles lie in this range, one table of 256.
const FIRST: usize = H::NULL.0;
static PREDEFINED: LazyLock<Vec<Option<Arc<Datatype>>>> = LazyLock::new(all);

/// The predefined datatype with this handle.
#[inline]
pub(super) fn find(handle: H) -> Option<&'static Arc<Datatype>> {
    PREDEFINED.get(handle.0.wrapping_sub(FIRST))?.as_ref()
}

/// The first predefined datatype of this basic type.
pub(super) fn of_basic(basic: Basic) -> Option<H> {
    BASICS.iter().find(|(_, other)| *other == basic).map(|(handle, _)| *handle)
}

fn all() -> Vec<Option<Arc<Datatype>>> {
    let mut table: Vec<Option<Arc<Datatype>>> = vec![None; 256];
    for (handle, basic) in BASICS {
        table[handle.0 - FIRST] = Some(Arc::new(named(*handle, single(*basic))));
    }
    for (handle, value, index) in PAIRS {
        let part = |part: &H| table[part.0 - FIRST].as_ref().and_then(|part| part.basic()).expect("a basic type");
        let (value, index) = (part(value), part(index));
        table[handle.0 - FIRST] = Some(Arc::new(named(*handle, pair(value, index))));
    }
    table
}

fn named(handle: H, map: TypeMap) -> Datatype {
    let mut datatype = Datatype::new(map, Envelope::new(MPI_COMBINER_NAMED, false));
    let name = DATATYPE_NAMES.iter().find(|(_, value)| *value == handle.to_int()).map(|(name, _)| (*name).to_owned());
    datatype.set_name(name.unwrap_or_default());
    datatype.commit();
    datatype.predefined = Some(handle);
    datatype
}

/// `MPI_Type_match_size`.
///
/// # Errors
/// `MPI_ERR_ARG` when there is no such type.
pub fn match_size(typeclass: c_int, size: c_int) -> Result<H> {
    let found = match (typeclass, size) {
        (MPI_TYPECLASS_INTEGER, 1) => H::INTEGER1,
        (MPI_TYPECLASS_INTEGER, 2) => H::INTEGER2,
        (MPI_TYPECLASS_INTEGER, 4) => H::INTEGER4,
        (MPI_TYPECLASS_INTEGER, 8) => H::INTEGER8,
        (MPI_TYPECLASS_INTEGER, 16) => H::INTEGER16,
        (MPI_TYPECLASS_REAL, 2) => H::REAL2,
        (MPI_TYPECLASS_REAL, 4) => H::REAL4,
        (MPI_TYPECLASS_REAL, 8) => H::REAL8,
        (MPI_TYPECLASS_REAL, 16) => H::REAL16,
        (MPI_TYPECLASS_COMPLEX, 4) => H::COMPLEX4,
        (MPI_TYPECLASS_COMPLEX, 8) => H::COMPLEX8,
        (MPI_TYPECLASS_COMPLEX, 16) => H::COMPLEX16,
        (MPI_TYPECLASS_COMPLEX, 32) => H::COMPLEX32,
        _ => fail!(MPI_ERR_ARG, "no type of class {typeclass} has {size} bytes"),
    };
    Ok(found)
}

/// `MPI_Type_get_value_index`: the pair of the two types, or `MPI_DATATYPE_NULL`.
#[must_use]
pub fn value_index(value: H, index: H) -> H {
    PAIRS.iter().find(|pair| (pair.1, pair.2) == (value, index)).map_or(H::NULL, |pair| pair.0)
}

/// `MPI_Type_create_f90_integer`: the type of `selected_int_kind(range)`.
///
/// # Errors
/// `MPI_ERR_ARG` when the compiler has no such kind.
pub fn f90_integer(range: c_int) -> Result<Arc<Datatype>> {
    let Some(scalar) = integer_kind(range) else {
        fail!(MPI_ERR_ARG, "no Fortran integer has {range} decimal digits");
    };
    Ok(parametrized(MPI_COMBINER_F90_INTEGER, &[range], of(scalar, FortranInteger)))
}

/// `MPI_Type_create_f90_real`: the type of `selected_real_kind(precision, range)`.
///
/// # Errors
/// `MPI_ERR_ARG` when the compiler has no such kind.
pub fn f90_real(precision: c_int, range: c_int) -> Result<Arc<Datatype>> {
    let scalar = scalar_of_real(precision, range)?;
    Ok(parametrized(MPI_COMBINER_F90_REAL, &[precision, range], of(scalar, Float)))
}

/// `MPI_Type_create_f90_complex`.
///
/// # Errors
/// `MPI_ERR_ARG` when the compiler has no such kind.
pub fn f90_complex(precision: c_int, range: c_int) -> Result<Arc<Datatype>> {
    let scalar = scalar_of_real(precision, range)?;
    Ok(parametrized(MPI_COMBINER_F90_COMPLEX, &[precision, range], of(scalar, Complex)))
}

fn scalar_of_real(precision: c_int, range: c_int) -> Result<Scalar> {
    if precision == MPI_UNDEFINED && range == MPI_UNDEFINED {
        fail!(MPI_ERR_ARG, "precision and range are both MPI_UNDEFINED");
    }
    // MPI_UNDEFINED is negative, so the other argument decides.
    let Some(scalar) = real_kind(precision, range) else {
        fail!(MPI_ERR_ARG, "no Fortran real has {precision} decimal digits and range {range}");
    };
    Ok(scalar)
}

/// An unnamed predefined type. Section 19.1.9: the same arguments give the same type, which the program does not free.
fn parametrized(combiner: c_int, arguments: &[c_int], basic: Basic) -> Arc<Datatype> {
    type ParametrizedTypes = HashMap<(c_int, Vec<c_int>), Arc<Datatype>>;
    process_local! {
        static KNOWN: LazyLock<Mutex<ParametrizedTypes>> = LazyLock::new(Mutex::default);
    }
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let datatype = known.entry((combiner, arguments.to_vec())).or_insert_with(|| {
        super::DERIVED.insert_with(|value| {
            let mut envelope = Envelope::new(combiner, false);
            envelope.integers = arguments.to_vec();
            let mut datatype = Datatype::new(single(basic), envelope);
            datatype.commit();
            datatype.predefined = Some(DatatypeHandle(value));
            Arc::new(datatype)
        })
    });
    Arc::clone(datatype)
}
