//! Packing (MPI-5.0 section 5.2). A packed message has no header: it is the bytes of its elements.

use super::buffers::{check_bytes, check_place};
use super::check::check_count;
use redrt_abi::error::{Result, Scope};
use redrt_abi::fail;
use redrt_abi::handle::{CommHandle, DatatypeHandle};
use redrt_abi::{CountOut, Input, MPI_ERR_ARG, MPI_ERR_TRUNCATE, MPI_ERR_UNSUPPORTED_DATAREP, packed};
use redrt_comm::datatype::{self, Datatype, resolve_committed};
use redrt_datatype::{external_size, from_external, to_external};
use redrt_runtime as runtime;
use std::ffi::{c_char, c_void};

/// Checks a position in a packed buffer of `size` bytes. Returns the number of bytes behind it.
fn check_position(size: i64, position: i64) -> Result<usize> {
    if size < 0 || position < 0 || position > size {
        fail!(MPI_ERR_ARG, "position {position} in a buffer of {size} bytes");
    }
    Ok((size - position) as usize)
}

fn check_room(needed: u64, room: usize) -> Result {
    if needed > room as u64 {
        fail!(MPI_ERR_TRUNCATE, "{needed} bytes do not fit the {room} that are left");
    }
    Ok(())
}

/// `MPI_Pack`.
pub fn pack(
    inbuf: *const c_void,
    incount: i64,
    datatype: DatatypeHandle,
    outbuf: *mut c_void,
    outsize: i64,
    position: CountOut,
    comm: CommHandle,
) -> Result {
    super::errhandler::attached(Scope::Comm(comm))?;
    let datatype = resolve_committed(datatype)?;
    let begin = position.get()?;
    let room = check_position(outsize, begin)?;
    let needed = datatype.packed_size(check_count(incount)?);
    check_room(needed, room)?;
    check_bytes(outbuf, needed as usize)?;
    check_place(inbuf, 0, incount, &datatype)?;
    let out = packed::writable(outbuf, begin, needed as usize);
    datatype.pack(inbuf.cast(), incount, out);
    position.set(begin + needed as i64)
}

/// `MPI_Unpack`.
pub fn unpack(
    inbuf: *const c_void,
    insize: i64,
    position: CountOut,
    outbuf: *mut c_void,
    outcount: i64,
    datatype: DatatypeHandle,
    comm: CommHandle,
) -> Result {
    super::errhandler::attached(Scope::Comm(comm))?;
    let datatype = resolve_committed(datatype)?;
    let begin = position.get()?;
    let room = check_position(insize, begin)?;
    let needed = datatype.packed_size(check_count(outcount)?);
    check_room(needed, room)?;
    check_bytes(inbuf, needed as usize)?;
    check_place(outbuf, 0, outcount, &datatype)?;
    datatype.unpack(outbuf.cast(), outcount, packed::readable(inbuf, begin, needed as usize));
    position.set(begin + needed as i64)
}

/// `MPI_Pack_size`.
pub fn pack_size(incount: i64, datatype: DatatypeHandle, comm: CommHandle, size: CountOut) -> Result {
    super::errhandler::attached(Scope::Comm(comm))?;
    // The type need not be committed: its size is known before.
    let datatype = datatype::resolve(datatype)?;
    size.set_or_undefined(datatype.packed_size(check_count(incount)?) as i64)
}

fn check_representation(datarep: Input<c_char>) -> Result {
    let name = datarep.text()?;
    // MPICH and Open MPI ignore the representation.
    if name != "external32" && runtime::is_pedantic() {
        fail!(MPI_ERR_UNSUPPORTED_DATAREP, "the data representation is '{name}', only external32 is known");
    }
    Ok(())
}

/// `MPI_Pack_external`.
pub fn pack_external(
    datarep: Input<c_char>,
    inbuf: *const c_void,
    incount: i64,
    datatype: DatatypeHandle,
    outbuf: *mut c_void,
    outsize: i64,
    position: CountOut,
) -> Result {
    check_representation(datarep)?;
    let datatype = resolve_committed(datatype)?;
    let begin = position.get()?;
    let room = check_position(outsize, begin)?;
    let count = check_count(incount)? as u64;
    let needed = external_size(&datatype, count);
    check_room(needed, room)?;
    check_bytes(outbuf, needed as usize)?;
    check_place(inbuf, 0, incount, &datatype)?;
    let mut native = vec![0; datatype.packed_size(incount) as usize];
    datatype.pack(inbuf.cast(), incount, &mut native);
    let external = to_external(&datatype, count, &native)?;
    packed::writable(outbuf, begin, needed as usize).copy_from_slice(&external);
    position.set(begin + needed as i64)
}

/// `MPI_Unpack_external`.
pub fn unpack_external(
    datarep: Input<c_char>,
    inbuf: *const c_void,
    insize: i64,
    position: CountOut,
    outbuf: *mut c_void,
    outcount: i64,
    datatype: DatatypeHandle,
) -> Result {
    check_representation(datarep)?;
    let datatype = resolve_committed(datatype)?;
    let begin = position.get()?;
    let room = check_position(insize, begin)?;
    check_bytes(inbuf, room)?;
    let count = check_count(outcount)? as u64;
    check_place(outbuf, 0, outcount, &datatype)?;
    let (native, read) = from_external(&datatype, count, packed::readable(inbuf, begin, room))?;
    datatype.unpack(outbuf.cast(), outcount, &native);
    position.set(begin + read as i64)
}

/// `MPI_Pack_external_size`.
pub fn pack_external_size(datarep: Input<c_char>, incount: i64, datatype: DatatypeHandle, size: CountOut) -> Result {
    check_representation(datarep)?;
    let datatype: &Datatype = &*datatype::resolve(datatype)?;
    size.set(external_size(datatype, check_count(incount)? as u64) as i64)
}
