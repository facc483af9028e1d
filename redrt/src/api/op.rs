//! Reduction operations (MPI-5.0 section 6.9).

use super::buffers::check_place;
use super::check::check_count;
use redrt_abi::error::Result;
use redrt_abi::handle::{DatatypeHandle, OpHandle};
use redrt_abi::{Callback, Output};
use redrt_comm::datatype::resolve_committed;
use redrt_comm::op;
use redrt_runtime::callbacks::UserFunction;
use std::ffi::{c_int, c_void};

/// `MPI_Op_create`.
pub fn op_create(user_fn: Callback, commute: c_int, op: Output<OpHandle>, wide: bool) -> Result {
    create(user_fn.into(), commute, op, wide)
}

/// `MPI_Op_create` of a function that may be called through an adapter (`UserFunction`).
pub fn create(function: UserFunction, commute: c_int, op: Output<OpHandle>, wide: bool) -> Result {
    op.set(op::create(function, wide, commute != 0))
}

/// `MPI_Op_free`.
pub fn op_free(op: Output<OpHandle>) -> Result {
    op::free(op.get()?)?;
    op.set(OpHandle::NULL)
}

/// `MPI_Op_commutative`.
pub fn op_commutative(op: OpHandle, commute: Output<c_int>) -> Result {
    commute.set(c_int::from(op::resolve(op)?.is_commutative()))
}

/// `MPI_Reduce_local`.
pub fn reduce_local(
    inbuf: *const c_void,
    inoutbuf: *mut c_void,
    count: i64,
    datatype: DatatypeHandle,
    op: OpHandle,
) -> Result {
    let datatype = resolve_committed(datatype)?;
    let op = op::resolve(op)?;
    op.check(&datatype)?;
    check_count(count)?;
    for buffer in [inbuf, inoutbuf.cast_const()] {
        check_place(buffer, 0, count, &datatype)?;
    }
    op.reduce_checked(&datatype, count, inbuf.cast(), inoutbuf.cast());
    Ok(())
}
