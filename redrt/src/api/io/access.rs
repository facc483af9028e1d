//! Reading and writing (MPI-5.0 section 14.4). Collective forms do not communicate: each rank accesses its bytes by
//! itself. Nonblocking forms are complete when they return.

use super::super::buffers::typed_at;
use crate::api::p2p::complete_handle;
use redrt_abi::error::Result;
use redrt_abi::handle::{DatatypeHandle, FileHandle, RequestHandle};
use redrt_abi::{Offset, Output, Status};
use redrt_engine::request;
use redrt_files::file::access::{Buffer, Way};
use redrt_files::file::{self, File};
use std::ffi::c_void;

fn buffer(start: *const c_void, count: i64, datatype: DatatypeHandle) -> Result<Buffer> {
    let typed = typed_at(start, count, datatype)?;
    Ok(Buffer { start: start.cast_mut(), count: typed.count, datatype: typed.datatype })
}

fn report(status: Output<Status>, bytes: u64) -> Result {
    let mut told = Status::empty();
    told.set_byte_count(bytes);
    status.set_if_wanted(told);
    Ok(())
}

fn over(file: &File, request: Output<RequestHandle>, bytes: u64) -> Result {
    request.set(complete_handle(&file.comm, request::Status { bytes, ..request::Status::EMPTY }))
}

/// An access at an explicit offset.
fn at(file: &File, way: Way, offset: Offset, buffer: &Buffer) -> Result<u64> {
    file.check_random()?;
    file.transfer(way, offset, buffer)
}

/// The functions that take an offset: blocking, collective, nonblocking, nonblocking collective, and split.
macro_rules! at_offset {
    ($way:expr, $pointer:ty: $plain:ident, $all:ident, $begun:ident, $begun_all:ident, $begin:ident, $end:ident, $ends_by:literal) => {
        at_offset!(@blocking $way, $pointer, $plain);
        at_offset!(@blocking $way, $pointer, $all);
        at_offset!(@begun $way, $pointer, $begun);
        at_offset!(@begun $way, $pointer, $begun_all);

        /// The split form's begin.
        ///
        /// # Safety
        /// The pointers are those of the C call.
        pub unsafe fn $begin(
            fh: FileHandle, offset: Offset, buf: $pointer, count: i64, datatype: DatatypeHandle,
        ) -> Result {
            let file = file::resolve(fh)?;
            let buffer = buffer(buf, count, datatype)?;
            file.begin_split($ends_by, || at(&file, $way, offset, &buffer))
        }

        split_end!($pointer, $end, $ends_by);
    };
    (@blocking $way:expr, $pointer:ty, $name:ident) => {
        /// The blocking form.
        ///
        /// # Safety
        /// The pointers are those of the C call.
        pub unsafe fn $name(
            fh: FileHandle, offset: Offset, buf: $pointer, count: i64, datatype: DatatypeHandle, status: Output<Status>,
        ) -> Result {
            let file = file::resolve(fh)?;
            report(status, at(&file, $way, offset, &buffer(buf, count, datatype)?)?)
        }
    };
    (@begun $way:expr, $pointer:ty, $name:ident) => {
        /// The nonblocking form.
        ///
        /// # Safety
        /// The pointers are those of the C call.
        pub unsafe fn $name(
            fh: FileHandle, offset: Offset, buf: $pointer, count: i64, datatype: DatatypeHandle,
            request: Output<RequestHandle>,
        ) -> Result {
            let file = file::resolve(fh)?;
            over(&file, request, at(&file, $way, offset, &buffer(buf, count, datatype)?)?)
        }
    };
}

/// The end of a split collective.
macro_rules! split_end {
    ($pointer:ty, $end:ident, $ends_by:literal) => {
        /// The split form's end. The buffer was accessed at the begin.
        ///
        /// # Safety
        /// The pointers are those of the C call.
        pub unsafe fn $end(fh: FileHandle, _buf: $pointer, status: Output<Status>) -> Result {
            report(status, file::resolve(fh)?.end_split($ends_by)?)
        }
    };
}

/// The functions that use a file pointer. `$transfer` uses the individual pointer, the shared one, or the shared one in
/// rank order.
macro_rules! at_pointer {
    (@blocking $way:expr, $pointer:ty, $transfer:ident: $($name:ident)*) => {$(
        /// The blocking form.
        ///
        /// # Safety
        /// The pointers are those of the C call.
        pub unsafe fn $name(
            fh: FileHandle, buf: $pointer, count: i64, datatype: DatatypeHandle, status: Output<Status>,
        ) -> Result {
            let file = file::resolve(fh)?;
            report(status, file.$transfer($way, &buffer(buf, count, datatype)?)?)
        }
    )*};
    (@begun $way:expr, $pointer:ty, $transfer:ident: $($name:ident)*) => {$(
        /// The nonblocking form.
        ///
        /// # Safety
        /// The pointers are those of the C call.
        pub unsafe fn $name(
            fh: FileHandle, buf: $pointer, count: i64, datatype: DatatypeHandle, request: Output<RequestHandle>,
        ) -> Result {
            let file = file::resolve(fh)?;
            over(&file, request, file.$transfer($way, &buffer(buf, count, datatype)?)?)
        }
    )*};
    (@split $way:expr, $pointer:ty, $transfer:ident: $begin:ident, $end:ident, $ends_by:literal) => {
        /// The split form's begin.
        ///
        /// # Safety
        /// The pointers are those of the C call.
        pub unsafe fn $begin(fh: FileHandle, buf: $pointer, count: i64, datatype: DatatypeHandle) -> Result {
            let file = file::resolve(fh)?;
            let buffer = buffer(buf, count, datatype)?;
            file.begin_split($ends_by, || file.$transfer($way, &buffer))
        }

        split_end!($pointer, $end, $ends_by);
    };
}

at_offset!(Way::Read, *mut c_void: file_read_at, file_read_at_all, file_iread_at, file_iread_at_all,
    file_read_at_all_begin, file_read_at_all_end, "MPI_File_read_at_all_end");
at_offset!(Way::Write, *const c_void: file_write_at, file_write_at_all, file_iwrite_at, file_iwrite_at_all,
    file_write_at_all_begin, file_write_at_all_end, "MPI_File_write_at_all_end");

at_pointer!(@blocking Way::Read, *mut c_void, transfer_here: file_read file_read_all);
at_pointer!(@blocking Way::Write, *const c_void, transfer_here: file_write file_write_all);
at_pointer!(@begun Way::Read, *mut c_void, transfer_here: file_iread file_iread_all);
at_pointer!(@begun Way::Write, *const c_void, transfer_here: file_iwrite file_iwrite_all);
at_pointer!(@split Way::Read, *mut c_void, transfer_here:
    file_read_all_begin, file_read_all_end, "MPI_File_read_all_end");
at_pointer!(@split Way::Write, *const c_void, transfer_here:
    file_write_all_begin, file_write_all_end, "MPI_File_write_all_end");

at_pointer!(@blocking Way::Read, *mut c_void, transfer_shared: file_read_shared);
at_pointer!(@blocking Way::Write, *const c_void, transfer_shared: file_write_shared);
at_pointer!(@begun Way::Read, *mut c_void, transfer_shared: file_iread_shared);
at_pointer!(@begun Way::Write, *const c_void, transfer_shared: file_iwrite_shared);

at_pointer!(@blocking Way::Read, *mut c_void, transfer_ordered: file_read_ordered);
at_pointer!(@blocking Way::Write, *const c_void, transfer_ordered: file_write_ordered);
at_pointer!(@split Way::Read, *mut c_void, transfer_ordered:
    file_read_ordered_begin, file_read_ordered_end, "MPI_File_read_ordered_end");
at_pointer!(@split Way::Write, *const c_void, transfer_ordered:
    file_write_ordered_begin, file_write_ordered_end, "MPI_File_write_ordered_end");
