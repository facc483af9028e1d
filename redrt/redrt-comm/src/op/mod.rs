//! Reduction operations (MPI-5.0 section 6.9), of the standard and of the program.

#[cfg(test)]
mod tests;

use crate::datatype::{self, Datatype};
use redrt_abi::MPI_ERR_OP;
use redrt_abi::error::{Error, Result};
use redrt_abi::fail;
use redrt_abi::handle::{HandleTable, Held, OpHandle};
use redrt_datatype::basic::Class;
use redrt_datatype::basic::Operand;
use redrt_datatype::reduce::{Operator, Support};
use redrt_runtime as runtime;
use redrt_runtime::callbacks;
use redrt_runtime::callbacks::UserFunction;
use redrt_transport::copying;
use std::ffi::c_int;
use std::sync::{Arc, LazyLock};

/// A reduction operation, predefined or made by the program (MPI-5.0 §6.9).
#[derive(Debug)]
pub struct Op {
    kind: OperationKind,
    commutative: bool,
}

#[derive(Clone, Copy, Debug)]
enum OperationKind {
    Standard(Operator),
    OneSided(OneSided),
    User { function: UserFunction, wide: bool },
}

/// Operations of windows only, which collectives refuse.
#[derive(Clone, Copy, Debug)]
enum OneSided {
    Replace,
    NoOperation,
}

const STANDARD: &[(OpHandle, OperationKind)] = &[
    (OpHandle::SUM, OperationKind::Standard(Operator::Sum)),
    (OpHandle::PROD, OperationKind::Standard(Operator::Product)),
    (OpHandle::MIN, OperationKind::Standard(Operator::Minimum)),
    (OpHandle::MAX, OperationKind::Standard(Operator::Maximum)),
    (OpHandle::BAND, OperationKind::Standard(Operator::BitAnd)),
    (OpHandle::BOR, OperationKind::Standard(Operator::BitOr)),
    (OpHandle::BXOR, OperationKind::Standard(Operator::BitXor)),
    (OpHandle::LAND, OperationKind::Standard(Operator::LogicalAnd)),
    (OpHandle::LOR, OperationKind::Standard(Operator::LogicalOr)),
    (OpHandle::LXOR, OperationKind::Standard(Operator::LogicalXor)),
    (OpHandle::MINLOC, OperationKind::Standard(Operator::MinimumLocation)),
    (OpHandle::MAXLOC, OperationKind::Standard(Operator::MaximumLocation)),
    (OpHandle::REPLACE, OperationKind::OneSided(OneSided::Replace)),
    (OpHandle::NO_OP, OperationKind::OneSided(OneSided::NoOperation)),
];

/// Predefined operations by handle value; their handles are below 64.
static PREDEFINED: LazyLock<Vec<Option<Arc<Op>>>> = LazyLock::new(|| {
    let mut table = vec![None; 64];
    for (handle, kind) in STANDARD {
        table[handle.0] = Some(Arc::new(Op { kind: *kind, commutative: true }));
    }
    table
});

process_local! {
    static USER: HandleTable<Op> = HandleTable::new();
}

fn is_char(operand: Operand) -> bool {
    matches!(operand, Operand::Basic(basic) if basic.class == Class::Char)
}

/// A new operation that calls `function`, of the large-count type if `wide`.
pub fn create(function: UserFunction, wide: bool, commutative: bool) -> OpHandle {
    OpHandle(USER.insert(Arc::new(Op { kind: OperationKind::User { function, wide }, commutative })))
}

/// Changes the function of an operation of the program, from the next reduction on.
pub fn change_function(handle: OpHandle, change: impl FnOnce(UserFunction) -> UserFunction) {
    USER.replace(handle.0, |op| {
        let kind = match op.kind {
            OperationKind::User { function, wide } => OperationKind::User { function: change(function), wide },
            kind => kind,
        };
        Op { kind, commutative: op.commutative }
    });
}

/// The operation behind a handle.
///
/// # Errors
/// `MPI_ERR_OP` when none exists.
pub fn resolve(handle: OpHandle) -> Result<Held<Op>> {
    let predefined = PREDEFINED.get(handle.0).and_then(Option::as_ref);
    let found = predefined.map(Held::Forever).or_else(|| USER.get(handle.0).map(Held::Counted));
    found.ok_or_else(|| Error::new(MPI_ERR_OP, "not a valid operation"))
}

/// Effect of a predefined operation on a window's memory.
#[derive(Clone, Copy, Debug)]
pub enum InPlace {
    /// The memory is only read.
    Nothing,
    /// The memory is replaced by the data.
    Replace,
    /// The memory is combined with the data.
    Combine(Operator, Operand),
}

impl InPlace {
    /// Effect of the operation on elements of a predefined type. `None` for functions of the program, and for types on
    /// which it is not defined.
    #[inline]
    #[must_use]
    pub fn of(handle: OpHandle, datatype: &Datatype) -> Option<Self> {
        let operation = PREDEFINED.get(handle.0)?.as_ref()?;
        match operation.kind {
            OperationKind::OneSided(OneSided::NoOperation) => Some(Self::Nothing),
            OperationKind::OneSided(OneSided::Replace) => Some(Self::Replace),
            OperationKind::Standard(operator) => {
                operation.check(datatype).ok()?;
                Some(Self::Combine(operator, datatype.operand()?))
            }
            OperationKind::User { .. } => None,
        }
    }

    /// Applies the operation to `count` adjacent elements, which take `bytes` bytes.
    ///
    /// # Safety
    /// `there` is valid for reads and writes of `bytes` bytes, and `brought` for reads, unless nothing is done.
    #[inline]
    pub unsafe fn act(self, brought: *const u8, there: *mut u8, count: i64, bytes: usize) {
        match self {
            Self::Nothing => {}
            // Pointers to no bytes may be invalid.
            _ if bytes == 0 => {}
            // SAFETY: - valid for reads and writes of as many bytes: the caller's duty above. The two may overlap.
            Self::Replace => unsafe { copying::copy(brought, there, bytes) },
            Self::Combine(operator, operand) => operator.apply(operand, count as usize, brought, there),
        }
    }
}

/// Frees an operation of the program; reductions under way keep it.
///
/// # Errors
/// `MPI_ERR_OP` when there is none or it is predefined.
pub fn free(handle: OpHandle) -> Result {
    USER.remove(handle.0).map(drop).ok_or_else(|| Error::new(MPI_ERR_OP, "not an operation that can be freed"))
}

/// First codes of windows' operations, and of functions of the program.
const ONE_SIDED_CODE: u32 = 1 << 7;
const USER_CODE: u32 = 1 << 8;

impl Op {
    /// A number that is the same in all processes, and different for different operations. Functions of the program
    /// share one number, since processes cannot compare functions.
    #[must_use]
    pub fn code(&self) -> u32 {
        match self.kind {
            OperationKind::Standard(operator) => operator as u32,
            OperationKind::OneSided(operation) => ONE_SIDED_CODE + operation as u32,
            OperationKind::User { .. } => USER_CODE + u32::from(self.commutative),
        }
    }

    /// Name of the operation for messages to the user.
    #[must_use]
    pub fn name(&self) -> String {
        match self.kind {
            OperationKind::Standard(operator) => format!("{operator:?}"),
            OperationKind::OneSided(operation) => format!("{operation:?}"),
            OperationKind::User { .. } => "a function of the program".to_owned(),
        }
    }

    /// Returns true if the operands may be combined in any order.
    #[must_use]
    pub fn is_commutative(&self) -> bool {
        self.commutative
    }

    /// Returns true if the operation is a function of the program.
    #[must_use]
    pub fn is_user(&self) -> bool {
        matches!(self.kind, OperationKind::User { .. })
    }

    /// Fails unless the operation may be applied to elements of `datatype`. To be called before any message is sent.
    ///
    /// # Errors
    /// `MPI_ERR_OP` when it may not (MPI-5.0 section 6.9.2), or this machine lacks the arithmetic.
    pub fn check(&self, datatype: &Datatype) -> Result {
        let operator = match self.kind {
            OperationKind::Standard(operator) => operator,
            OperationKind::User { .. } => return Ok(()),
            OperationKind::OneSided(_) => {
                fail!(MPI_ERR_OP, "MPI_REPLACE and MPI_NO_OP are for one-sided communication")
            }
        };
        if datatype.predefined().is_none() {
            fail!(MPI_ERR_OP, "{operator:?} is not defined on derived datatypes");
        }
        if datatype.operand().is_some_and(is_char) && runtime::is_pedantic() {
            fail!(MPI_ERR_OP, "{operator:?} is not defined on {} (--pedantic)", datatype.name());
        }
        match datatype.operand().map_or(Support::Undefined, |operand| operator.support(operand)) {
            Support::Available => Ok(()),
            Support::Undefined => fail!(MPI_ERR_OP, "{operator:?} is not defined on {}", datatype.name()),
            Support::Unavailable => {
                fail!(MPI_ERR_OP, "{operator:?} on {} is not available on this machine", datatype.name())
            }
        }
    }

    /// `in_out[i] = input[i] op in_out[i]` for `count` elements, laid out in memory by `datatype`.
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

    /// Reduces as [`Op::reduce`] does, for a datatype that [`Op::check`] has passed.
    ///
    /// # Panics
    /// When the check has not passed.
    pub fn reduce_checked(&self, datatype: &Arc<Datatype>, count: i64, input: *const u8, in_out: *mut u8) {
        match self.kind {
            _ if count <= 0 => {}
            OperationKind::User { function, wide } => call_user(function, wide, datatype, count, input, in_out),
            OperationKind::Standard(operator) => {
                let operand = datatype.operand().expect("check lets basic types and pairs pass");
                operator.apply(operand, count as usize, input, in_out);
            }
            OperationKind::OneSided(operation) => unreachable!("check refuses {operation:?}"),
        }
    }
}

fn call_user(
    function: UserFunction,
    wide: bool,
    datatype: &Arc<Datatype>,
    count: i64,
    input: *const u8,
    in_out: *mut u8,
) {
    // A function with an int count is called several times if there are more elements.
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
