//! Statuses (MPI-5.0 section 3.2.5) and the counts they hold.

use redrt_abi::error::Result;
use redrt_abi::fail;
use redrt_abi::handle::DatatypeHandle;
use redrt_abi::{Count, CountOut, Fint, Input, MPI_ERR_COUNT, MPI_UNDEFINED, Output, Status};
use redrt_comm::datatype::resolve;
use std::ffi::c_int;

/// `MPI_Get_count`.
pub fn get_count(status: Input<Status>, datatype: DatatypeHandle, count: CountOut) -> Result {
    let found = resolve(datatype)?.count_of(status.get()?.byte_count());
    count.set_or_undefined(found.unwrap_or(i64::from(MPI_UNDEFINED)))
}

/// `MPI_Get_elements`.
pub fn get_elements(status: Input<Status>, datatype: DatatypeHandle, count: CountOut) -> Result {
    let found = resolve(datatype)?.elements_of(status.get()?.byte_count());
    count.set_or_undefined(found.unwrap_or(i64::from(MPI_UNDEFINED)))
}

/// `MPI_Get_elements_x`.
pub fn get_elements_x(status: Input<Status>, datatype: DatatypeHandle, count: Output<Count>) -> Result {
    let found = resolve(datatype)?.elements_of(status.get()?.byte_count());
    count.set(found.unwrap_or(i64::from(MPI_UNDEFINED)))
}

fn change(status: Output<Status>, change: impl FnOnce(&mut Status)) -> Result {
    let mut value = status.get()?;
    change(&mut value);
    status.set(value)
}

/// `MPI_Status_set_elements`.
pub fn status_set_elements(status: Output<Status>, datatype: DatatypeHandle, count: i64) -> Result {
    let Ok(elements) = u64::try_from(count) else { fail!(MPI_ERR_COUNT, "the count is {count}") };
    let bytes = resolve(datatype)?.bytes_of_elements(elements);
    change(status, |status| status.set_byte_count(bytes))
}

/// `MPI_Status_set_elements_x`.
pub fn status_set_elements_x(status: Output<Status>, datatype: DatatypeHandle, count: Count) -> Result {
    status_set_elements(status, datatype, count)
}

/// `MPI_Status_set_cancelled`.
pub fn status_set_cancelled(status: Output<Status>, flag: c_int) -> Result {
    change(status, |status| status.set_cancelled(flag != 0))
}

/// `MPI_Status_set_source`.
pub fn status_set_source(status: Output<Status>, source: c_int) -> Result {
    change(status, |status| status.source = source)
}

/// `MPI_Status_set_tag`.
pub fn status_set_tag(status: Output<Status>, tag: c_int) -> Result {
    change(status, |status| status.tag = tag)
}

/// `MPI_Status_set_error`.
pub fn status_set_error(status: Output<Status>, err: c_int) -> Result {
    change(status, |status| status.error = err)
}

/// `MPI_Status_get_source`.
pub fn status_get_source(status: Input<Status>, source: Output<c_int>) -> Result {
    source.set(status.get()?.source)
}

/// `MPI_Status_get_tag`.
pub fn status_get_tag(status: Input<Status>, tag: Output<c_int>) -> Result {
    tag.set(status.get()?.tag)
}

/// `MPI_Status_get_error`.
pub fn status_get_error(status: Input<Status>, err: Output<c_int>) -> Result {
    err.set(status.get()?.error)
}

// The three forms of a status, C, Fortran array and Fortran type, have the same layout.

/// `MPI_Status_c2f`.
pub fn status_c2f(c_status: Input<Status>, f_status: Output<Fint>) -> Result {
    f_status.cast::<Status>().set(c_status.get()?)
}

/// `MPI_Status_f2c`.
pub fn status_f2c(f_status: Input<Fint>, c_status: Output<Status>) -> Result {
    c_status.set(f_status.cast::<Status>().get()?)
}

/// `MPI_Status_c2f08`.
pub fn status_c2f08(c_status: Input<Status>, f08_status: Output<Status>) -> Result {
    f08_status.set(c_status.get()?)
}

/// `MPI_Status_f082c`.
pub fn status_f082c(f08_status: Input<Status>, c_status: Output<Status>) -> Result {
    c_status.set(f08_status.get()?)
}

/// `MPI_Status_f082f`.
pub fn status_f082f(f08_status: Input<Status>, f_status: Output<Fint>) -> Result {
    f_status.cast::<Status>().set(f08_status.get()?)
}

/// `MPI_Status_f2f08`.
pub fn status_f2f08(f_status: Input<Fint>, f08_status: Output<Status>) -> Result {
    f08_status.set(f_status.cast::<Status>().get()?)
}
