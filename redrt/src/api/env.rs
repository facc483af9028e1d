//! Environment (MPI-5.0 chapter 9): versions, names, clocks, error codes, memory; the ABI queries of chapter 20.

use redrt_abi::error::{Error, Result};
use redrt_abi::fail;
use redrt_abi::handle::InfoHandle;
use redrt_abi::*;
use redrt_comm::objects::error_codes;
use redrt_comm::objects::host;
use redrt_comm::objects::info::{self, Info};
use std::ffi::{c_char, c_int, c_void};

/// `MPI_Get_version`.
pub fn get_version(version: Output<c_int>, subversion: Output<c_int>) -> Result {
    version.set(MPI_VERSION)?;
    subversion.set(MPI_SUBVERSION)
}

/// `MPI_Get_library_version`.
pub fn get_library_version(version: Output<c_char>, resultlen: Output<c_int>) -> Result {
    let text = concat!("redrt ", env!("CARGO_PKG_VERSION"), ": MPI 5.0 over replicated processes, standard ABI 1.0");
    set_string(version, resultlen, text, MPI_MAX_LIBRARY_VERSION_STRING)
}

/// `MPI_Get_processor_name`.
pub fn get_processor_name(name: Output<c_char>, resultlen: Output<c_int>) -> Result {
    set_string(name, resultlen, &host::get().processor_name(), MPI_MAX_PROCESSOR_NAME)
}

/// Writes a string and its length.
pub(crate) fn set_string(out: Output<c_char>, length: Output<c_int>, text: &str, capacity: c_int) -> Result {
    let written = out.set_text(text, capacity as usize)?;
    length.set(written as c_int)
}

/// `MPI_Wtime`.
pub fn wtime() -> f64 {
    host::get().wtime()
}

/// `MPI_Wtick`.
pub fn wtick() -> f64 {
    host::get().wtick()
}

/// `MPI_Pcontrol`: without a profiler it has no effect.
pub fn pcontrol(_level: c_int) -> Result {
    Ok(())
}

/// `MPI_Get_hw_resource_info`: returns an empty info object, as no resource types are known.
pub fn get_hw_resource_info(hw_info: Output<InfoHandle>) -> Result {
    hw_info.set(info::register(Info::default()))
}

/// `MPI_Alloc_mem`.
pub fn alloc_mem(size: Aint, info: InfoHandle, baseptr: *mut c_void) -> Result {
    info::resolve_hints(info)?;
    let Ok(size) = usize::try_from(size) else { fail!(MPI_ERR_ARG, "the size is {size}") };
    let out = Output::<*mut c_void>::from_address(baseptr);
    let block = redrt_abi::memory::allocate(size);
    out.set(block.ok_or_else(|| Error::new(MPI_ERR_NO_MEM, format!("{size} bytes are not available")))?)
}

/// `MPI_Free_mem`.
pub fn free_mem(base: *mut c_void) -> Result {
    redrt_abi::memory::free(base);
    Ok(())
}

/// `MPI_Get_address`.
pub fn get_address(location: *const c_void, address: Output<Aint>) -> Result {
    address.set(location.expose_provenance() as Aint)
}

/// `MPI_Aint_add`.
pub fn aint_add(base: Aint, disp: Aint) -> Aint {
    base.wrapping_add(disp)
}

/// `MPI_Aint_diff`.
pub fn aint_diff(addr1: Aint, addr2: Aint) -> Aint {
    addr1.wrapping_sub(addr2)
}

/// `MPI_Error_class`.
pub fn error_class(errorcode: c_int, errorclass: Output<c_int>) -> Result {
    errorclass.set(error_codes::class_of(errorcode).ok_or_else(|| unknown_code(errorcode))?)
}

/// `MPI_Error_string`.
pub fn error_string(errorcode: c_int, string: Output<c_char>, resultlen: Output<c_int>) -> Result {
    let text = error_codes::text_of(errorcode).ok_or_else(|| unknown_code(errorcode))?;
    set_string(string, resultlen, &text, MPI_MAX_ERROR_STRING)
}

fn unknown_code(code: c_int) -> Error {
    Error::new(MPI_ERR_ARG, format!("{code} is not an error code"))
}

/// `MPI_Add_error_class`.
pub fn add_error_class(errorclass: Output<c_int>) -> Result {
    errorclass.set(error_codes::add_class())
}

/// `MPI_Add_error_code`.
pub fn add_error_code(errorclass: c_int, errorcode: Output<c_int>) -> Result {
    errorcode.set(error_codes::add_code(errorclass)?)
}

/// `MPI_Add_error_string`.
pub fn add_error_string(errorcode: c_int, string: Input<c_char>) -> Result {
    error_codes::set_text(errorcode, &string.text()?)
}

/// `MPI_Remove_error_class`.
pub fn remove_error_class(errorclass: c_int) -> Result {
    error_codes::remove_class(errorclass)
}

/// `MPI_Remove_error_code`.
pub fn remove_error_code(errorcode: c_int) -> Result {
    error_codes::remove_code(errorcode)
}

/// `MPI_Remove_error_string`.
pub fn remove_error_string(errorcode: c_int) -> Result {
    error_codes::remove_text(errorcode)
}

/// `MPI_Abi_get_version`.
pub fn abi_get_version(abi_major: Output<c_int>, abi_minor: Output<c_int>) -> Result {
    abi_major.set(MPI_ABI_VERSION)?;
    abi_minor.set(MPI_ABI_SUBVERSION)
}

/// `MPI_Abi_get_info`.
pub fn abi_get_info(info: Output<InfoHandle>) -> Result {
    let sizes = Info::default();
    for (key, size) in [
        ("mpi_aint_size", size_of::<Aint>()),
        ("mpi_count_size", size_of::<Count>()),
        ("mpi_offset_size", size_of::<Offset>()),
    ] {
        sizes.set(key, &size.to_string())?;
    }
    info.set(info::register(sizes))
}

/// Properties of the Fortran compiler that datatypes are laid out for: gfortran with its default kinds.
const FORTRAN: &[(&str, &str)] = &[
    ("mpi_logical_size", "4"),
    ("mpi_integer_size", "4"),
    ("mpi_real_size", "4"),
    ("mpi_double_precision_size", "8"),
    ("mpi_logical1_supported", "true"),
    ("mpi_logical2_supported", "true"),
    ("mpi_logical4_supported", "true"),
    ("mpi_logical8_supported", "true"),
    ("mpi_logical16_supported", "true"),
    ("mpi_integer1_supported", "true"),
    ("mpi_integer2_supported", "true"),
    ("mpi_integer4_supported", "true"),
    ("mpi_integer8_supported", "true"),
    ("mpi_integer16_supported", "true"),
    ("mpi_real2_supported", "true"),
    ("mpi_real4_supported", "true"),
    ("mpi_real8_supported", "true"),
    ("mpi_real16_supported", "true"),
    ("mpi_complex4_supported", "true"),
    ("mpi_complex8_supported", "true"),
    ("mpi_complex16_supported", "true"),
    ("mpi_complex32_supported", "true"),
    ("mpi_double_complex_supported", "true"),
];

/// `MPI_Abi_get_fortran_info`.
pub fn abi_get_fortran_info(info: Output<InfoHandle>) -> Result {
    let facts = Info::default();
    for (key, value) in FORTRAN {
        facts.set(key, value)?;
    }
    info.set(info::register(facts))
}

/// `MPI_Abi_set_fortran_info`: the properties are fixed, so only the same values are accepted.
pub fn abi_set_fortran_info(info: InfoHandle) -> Result {
    for (key, value) in info::resolve(info)?.pairs() {
        if let Some((_, own)) = FORTRAN.iter().find(|(own_key, own)| *own_key == key && *own != value) {
            fail!(MPI_ERR_ABI, "{key} is {own} in this library and cannot become {value}");
        }
    }
    Ok(())
}

/// `MPI_Abi_get_fortran_booleans`: gfortran's `.TRUE.` is 1 and its `.FALSE.` 0, in every kind.
pub fn abi_get_fortran_booleans(
    logical_size: c_int,
    logical_true: *mut c_void,
    logical_false: *mut c_void,
    is_set: Output<c_int>,
) -> Result {
    for (address, value) in [(logical_true, 1u8), (logical_false, 0)] {
        let bytes = Output::<u8>::from_address(address);
        for index in 0..logical_bytes(logical_size)? {
            bytes.set_at(index, if index == 0 { value } else { 0 })?;
        }
    }
    is_set.set(1)
}

/// `MPI_Abi_set_fortran_booleans`: the values are fixed, so only the same ones are accepted.
pub fn abi_set_fortran_booleans(logical_size: c_int, logical_true: *mut c_void, logical_false: *mut c_void) -> Result {
    for (address, value) in [(logical_true, 1u8), (logical_false, 0)] {
        let bytes = Output::<u8>::from_address(address);
        let bytes = bytes.slice(logical_bytes(logical_size)?)?;
        if bytes[0] != value || bytes[1..].iter().any(|byte| *byte != 0) {
            fail!(MPI_ERR_ABI, "LOGICAL values are 1 and 0 in this library and cannot be changed");
        }
    }
    Ok(())
}

fn logical_bytes(logical_size: c_int) -> Result<usize> {
    match logical_size {
        1 | 2 | 4 | 8 | 16 => Ok(logical_size as usize),
        other => Err(Error::new(MPI_ERR_ARG, format!("there is no LOGICAL of {other} bytes"))),
    }
}
