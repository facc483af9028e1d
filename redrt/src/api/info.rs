//! Info objects (MPI-5.0 chapter 10).

use redrt_abi::error::Result;
use redrt_abi::fail;
use redrt_abi::handle::InfoHandle;
use redrt_abi::{Input, MPI_ERR_ARG, MPI_MAX_INFO_KEY, Output};
use redrt_comm::objects::info::{self, Info};
use std::ffi::{c_char, c_int};

/// `MPI_Info_create`.
pub fn info_create(info: Output<InfoHandle>) -> Result {
    info.set(info::register(Info::default()))
}

/// `MPI_Info_create_env`: a copy of `MPI_INFO_ENV`. The launcher's facts are used; the arguments add none.
pub fn info_create_env(_argc: c_int, _argv: *mut *mut c_char, info: Output<InfoHandle>) -> Result {
    info_dup(InfoHandle::ENV, info)
}

/// `MPI_Info_dup`.
pub fn info_dup(info: InfoHandle, newinfo: Output<InfoHandle>) -> Result {
    newinfo.set(info::register(info::resolve(info)?.duplicate()))
}

/// `MPI_Info_free`.
pub fn info_free(info: Output<InfoHandle>) -> Result {
    info::free(info.get()?)?;
    info.set(InfoHandle::NULL)
}

/// `MPI_Info_set`.
pub fn info_set(info: InfoHandle, key: Input<c_char>, value: Input<c_char>) -> Result {
    info::resolve(info)?.set(&key.text()?, &value.text()?)
}

/// `MPI_Info_delete`.
pub fn info_delete(info: InfoHandle, key: Input<c_char>) -> Result {
    info::resolve(info)?.delete(&key.text()?)
}

/// `MPI_Info_get`, deprecated: the value is cut to `valuelen` characters, and the buffer has one more for the NUL.
pub fn info_get(
    info: InfoHandle,
    key: Input<c_char>,
    valuelen: c_int,
    value: Output<c_char>,
    flag: Output<c_int>,
) -> Result {
    let found = find(info, key)?;
    let Ok(length) = usize::try_from(valuelen) else { fail!(MPI_ERR_ARG, "the length is {valuelen}") };
    if let Some(found) = &found {
        value.set_text(found, length + 1)?;
    }
    flag.set(c_int::from(found.is_some()))
}

/// `MPI_Info_get_valuelen`, deprecated.
pub fn info_get_valuelen(info: InfoHandle, key: Input<c_char>, valuelen: Output<c_int>, flag: Output<c_int>) -> Result {
    let found = find(info, key)?;
    if let Some(found) = &found {
        valuelen.set(found.len() as c_int)?;
    }
    flag.set(c_int::from(found.is_some()))
}

/// `MPI_Info_get_string`: with a `buflen` of 0 it only returns the required size.
pub fn info_get_string(
    info: InfoHandle,
    key: Input<c_char>,
    buflen: Output<c_int>,
    value: Output<c_char>,
    flag: Output<c_int>,
) -> Result {
    let found = find(info, key)?;
    if let Some(found) = &found {
        let Ok(capacity) = usize::try_from(buflen.get()?) else { fail!(MPI_ERR_ARG, "the buffer length is negative") };
        if capacity > 0 {
            value.set_text(found, capacity)?;
        }
        // Chapter 10: in C the required size includes the NUL.
        buflen.set(found.len() as c_int + 1)?;
    }
    flag.set(c_int::from(found.is_some()))
}

fn find(info: InfoHandle, key: Input<c_char>) -> Result<Option<String>> {
    let key = key.text()?;
    info::check_key(&key)?;
    Ok(info::resolve(info)?.get(&key))
}

/// `MPI_Info_get_nkeys`.
pub fn info_get_nkeys(info: InfoHandle, nkeys: Output<c_int>) -> Result {
    nkeys.set(info::resolve(info)?.pairs().len() as c_int)
}

/// `MPI_Info_get_nthkey`.
pub fn info_get_nthkey(info: InfoHandle, n: c_int, key: Output<c_char>) -> Result {
    let pairs = info::resolve(info)?.pairs();
    let Some((name, _)) = usize::try_from(n).ok().and_then(|n| pairs.get(n)) else {
        fail!(MPI_ERR_ARG, "there is no key {n}, only {} keys", pairs.len());
    };
    key.set_text(name, MPI_MAX_INFO_KEY as usize).map(drop)
}
