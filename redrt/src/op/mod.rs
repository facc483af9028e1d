//! Reduction operations (MPI-5.0 section 6.9): those of the standard and those of the program.

mod arithmetic;
mod kernel;
mod pair;
#[cfg(test)]
mod tests;
mod wide_float;

use crate::abi::{Callback, MPI_ERR_OP, callbacks};
use crate::datatype::{self, Datatype};
use crate::error::{Error, Result};
use crate::fail;
use crate::handle::{Held, OpHandle, Table};
use redrt_datatype::basic::{Basic, Class, Scalar};
use std::ffi::c_int;
use std::sync::{Arc, LazyLock};

/// A reduction operation.
#[derive(Debug)]
pub struct Op {
    kind: Kind,
    commutative: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Standard(Standard),
    User { function: Callback, wide: bool },
}

/// The operations of the standard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standard {
    Sum,
    Product,
    Minimum,
    Maximum,
    BitAnd,
    BitOr,
    BitXor,
    LogicalAnd,
    LogicalOr,
    LogicalXor,
    MinimumLocation,
    MaximumLocation,
    Replace,
    NoOperation,
}

const STANDARD: &[(OpHandle, Standard)] = &[
    (OpHandle::SUM, Standard::Sum),
    (OpHandle::PROD, Standard::Product),
    (OpHandle::MIN, Standard::Minimum),
    (OpHandle::MAX, Standard::Maximum),
    (OpHandle::BAND, Standard::BitAnd),
    (OpHandle::BOR, Standard::BitOr),
    (OpHandle::BXOR, Standard::BitXor),
    (OpHandle::LAND, Standard::LogicalAnd),
    (OpHandle::LOR, Standard::LogicalOr),
    (OpHandle::LXOR, Standard::LogicalXor),
    (OpHandle::MINLOC, Standard::MinimumLocation),
    (OpHandle::MAXLOC, Standard::MaximumLocation),
    (OpHandle::REPLACE, Standard::Replace),
    (OpHandle::NO_OP, Standard::NoOperation),
];

/// By handle value; the predefined handles are below 64.
static PREDEFINED: LazyLock<Vec<Option<Arc<Op>>>> = LazyLock::new(|| {
    let mut table = vec![None; 64];
    for (handle, standard) in STANDARD {
        table[handle.0] = Some(Arc::new(Op { kind: Kind::Standard(*standard), commutative: true }));
    }
    table
});

static USER: Table<Op> = Table::new();

/// A new operation that calls `function`, of the large-count type if `wide`.
pub fn create(function: Callback, wide: bool, commutative: bool) -> OpHandle {
    OpHandle(USER.insert(Arc::new(Op { kind: Kind::User { function, wide }, commutative })))
}

/// The operation behind a handle.
///
/// # Errors
/// `MPI_ERR_OP` when there is none.
pub fn resolve(handle: OpHandle) -> Result<Held<Op>> {
    let predefined = PREDEFINED.get(handle.0).and_then(Option::as_ref);
    let found = predefined.map(Held::Forever).or_else(|| USER.get(handle.0).map(Held::Counted));
    found.ok_or_else(|| Error::new(MPI_ERR_OP, "not a valid operation"))
}

/// Frees an operation of the program; reductions under way keep it.
///
/// # Errors
/// `MPI_ERR_OP` when there is none or it is predefined.
pub fn free(handle: OpHandle) -> Result {
    USER.remove(handle.0).map(drop).ok_or_else(|| Error::new(MPI_ERR_OP, "not an operation that can be freed"))
}

/// The code of operations of the program: more than those of the standard have.
const USER_CODE: u32 = 1 << 8;

impl Op {
    /// What tells it from others in all processes. Of two functions of the program nobody can tell whether they are the same.
    #[must_use]
    pub fn code(&self) -> u32 {
        match self.kind {
            Kind::Standard(standard) => standard as u32,
            Kind::User { .. } => USER_CODE + u32::from(self.commutative),
        }
    }

    /// Its name for messages to the user.
    #[must_use]
    pub fn name(&self) -> String {
        match self.kind {
            Kind::Standard(standard) => format!("{standard:?}"),
            Kind::User { .. } => "a function of the program".to_owned(),
        }
    }

    /// Whether the operands may be combined in any order.
    #[must_use]
    pub fn is_commutative(&self) -> bool {
        self.commutative
    }

    /// Whether the operation is a function of the program.
    #[must_use]
    pub fn is_user(&self) -> bool {
        matches!(self.kind, Kind::User { .. })
    }

    /// Whether the operation may be applied to elements of `datatype`: to be asked before anything is communicated.
    ///
    /// # Errors
    /// `MPI_ERR_OP` when it may not (MPI-5.0 section 6.9.2), or this machine cannot.
    pub fn check(&self, datatype: &Datatype) -> Result {
        let Kind::Standard(standard) = self.kind else { return Ok(()) };
        if matches!(standard, Standard::Replace | Standard::NoOperation) {
            fail!(MPI_ERR_OP, "MPI_REPLACE and MPI_NO_OP are for one-sided communication");
        }
        let Some(handle) = datatype.predefined() else {
            fail!(MPI_ERR_OP, "{standard:?} is not defined on derived datatypes");
        };
        let defined = match (standard, datatype.basic()) {
            (Standard::MinimumLocation | Standard::MaximumLocation, None) => pair::is_pair(handle),
            (standard, Some(basic)) => is_defined(standard, basic.class),
            (_, None) => false,
        };
        if !defined {
            fail!(MPI_ERR_OP, "{standard:?} is not defined on {}", datatype.name());
        }
        match datatype.basic() {
            Some(basic) if !is_available(standard, basic) => {
                fail!(MPI_ERR_OP, "{standard:?} on {} is not available on this machine", datatype.name())
            }
            _ => Ok(()),
        }
    }

    /// `in_out[i] = input[i] op in_out[i]` for `count` elements, which lie in memory as `datatype` says.
    ///
    /// No lock may be held: the operation may be a function of the program.
    ///
    /// # Errors
    /// As [`Op::check`]; then `in_out` is as it was.
    pub fn reduce(&self, datatype: &Arc<Datatype>, count: i64, input: *const u8, in_out: *mut u8) -> Result {
        self.check(datatype)?;
        self.reduce_checked(datatype, count, input, in_out);
        Ok(())
    }

    /// The same, of a datatype that [`Op::check`] has let pass.
    ///
    /// # Panics
    /// When it has not.
    pub fn reduce_checked(&self, datatype: &Arc<Datatype>, count: i64, input: *const u8, in_out: *mut u8) {
        match self.kind {
            _ if count <= 0 => {}
            Kind::User { function, wide } => call_user(function, wide, datatype, count, input, in_out),
            Kind::Standard(standard) => match datatype.basic() {
                Some(basic) => kernel::reduce(standard, basic, count as usize, input, in_out),
                None => {
                    let handle = datatype.predefined().expect("check lets predefined types pass");
                    pair::reduce(standard, handle, count as usize, input, in_out);
                }
            },
        }
    }
}

fn call_user(function: Callback, wide: bool, datatype: &Arc<Datatype>, count: i64, input: *const u8, in_out: *mut u8) {
    // A function for int counts is called more than once for more elements than that.
    let step = if wide { i64::MAX } else { i64::from(c_int::MAX) };
    datatype::with_handle(datatype, |handle| {
        let mut done = 0;
        while done < count {
            let part = step.min(count - done);
            let offset = (done * datatype.extent()) as isize;
            let (input, in_out) = (input.wrapping_offset(offset), in_out.wrapping_offset(offset));
            callbacks::call_user_operation(function, wide, input, in_out, part, handle);
            done += part;
        }
    });
}

/// MPI-5.0 section 6.9.2: which operations are defined on which classes of types.
fn is_defined(standard: Standard, class: Class) -> bool {
    use Class::{Byte, Complex, Float, FortranInteger, Integer, Logical, MultiLanguage};
    match standard {
        Standard::Minimum | Standard::Maximum => matches!(class, Integer | FortranInteger | MultiLanguage | Float),
        Standard::Sum | Standard::Product => {
            matches!(class, Integer | FortranInteger | MultiLanguage | Float | Complex)
        }
        Standard::BitAnd | Standard::BitOr | Standard::BitXor => {
            matches!(class, Integer | FortranInteger | MultiLanguage | Byte)
        }
        Standard::LogicalAnd | Standard::LogicalOr | Standard::LogicalXor => {
            matches!(class, Integer | FortranInteger | MultiLanguage | Logical)
        }
        _ => false,
    }
}

/// Sums and products of formats that Rust has no type for are there where the machine has them.
fn is_available(standard: Standard, basic: Basic) -> bool {
    let arithmetic = matches!(standard, Standard::Sum | Standard::Product);
    let wide = matches!(basic.scalar, Scalar::F16 | Scalar::LongDouble | Scalar::F128);
    !arithmetic || !wide || wide_float::has_arithmetic(basic.scalar)
}
