//! Views and file pointers (MPI-5.0 sections 14.3 and 14.4).

use super::manage::without_file;
use redrt_abi::error::Result;
use redrt_abi::fail;
use redrt_abi::handle::{DatatypeHandle, FileHandle, InfoHandle};
use redrt_abi::{
    Callback, CountOut, Input, MPI_CONVERSION_FN_NULL, MPI_DISPLACEMENT_CURRENT, MPI_ERR_ARG, MPI_MAX_DATAREP_STRING,
    MPI_MODE_SEQUENTIAL, MPI_SEEK_CUR, MPI_SEEK_END, MPI_SEEK_SET, Offset, Output,
};
use redrt_comm::datatype::{self, Datatype, resolve_committed};
use redrt_comm::objects::info;
use redrt_files::file::representation::{self, Functions, Representation};
use redrt_files::file::view::View;
use redrt_files::file::{self, File};
use redrt_process::lock;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

/// `MPI_File_set_view`.
pub fn file_set_view(
    fh: FileHandle,
    disp: Offset,
    etype: DatatypeHandle,
    filetype: DatatypeHandle,
    datarep: Input<c_char>,
    info: InfoHandle,
) -> Result {
    let file = file::resolve(fh)?;
    let is_sequential = file.amode & MPI_MODE_SEQUENTIAL != 0;
    let displacement = match disp {
        // MPI-5.0 section 14.3: the displacement is the present place of the shared pointer.
        MPI_DISPLACEMENT_CURRENT if is_sequential => {
            let position = file.shared()?.get()?;
            let view = file.current_view();
            view.place(position as u64 * view.element_size())
        }
        MPI_DISPLACEMENT_CURRENT => {
            fail!(MPI_ERR_ARG, "MPI_DISPLACEMENT_CURRENT is for MPI_MODE_SEQUENTIAL only")
        }
        disp => match u64::try_from(disp) {
            Ok(disp) => disp,
            Err(_) => fail!(MPI_ERR_ARG, "the displacement is {disp}"),
        },
    };
    let representation = Representation::named(&datarep.text()?)?;
    let (element, tile) = (resolve_committed(etype)?, resolve_committed(filetype)?);
    let view = View::new(displacement, element.shared(), tile.shared(), representation)?;
    if let Some(hints) = info::resolve_hints(info)? {
        lock(&file.info).update(&hints);
    }
    *lock(&file.view) = Arc::new(view);
    *lock(&file.pointer) = 0;
    if file.shared.is_ok() {
        file.seek_shared(0)?;
    }
    Ok(())
}

/// The program's handle of a view's datatype: for a derived type a new handle, which the program frees.
fn give(datatype: &Arc<Datatype>) -> DatatypeHandle {
    match datatype.predefined() {
        Some(handle) => handle,
        None => {
            let copy = Datatype::duplicate(datatype);
            copy.commit();
            datatype::register(Arc::new(copy))
        }
    }
}

/// `MPI_File_get_view`.
pub fn file_get_view(
    fh: FileHandle,
    disp: Output<Offset>,
    etype: Output<DatatypeHandle>,
    filetype: Output<DatatypeHandle>,
    datarep: Output<c_char>,
) -> Result {
    let view = file::resolve(fh)?.current_view();
    disp.set(view.displacement as Offset)?;
    etype.set(give(&view.element))?;
    filetype.set(give(&view.filetype))?;
    datarep.set_text(view.representation.name(), MPI_MAX_DATAREP_STRING as usize)?;
    Ok(())
}

/// Target of a seek, in elements of the view. `current` is the pointer's present place.
fn destination(file: &File, offset: Offset, whence: c_int, current: i64) -> Result<i64> {
    let base = match whence {
        MPI_SEEK_SET => 0,
        MPI_SEEK_CUR => current,
        MPI_SEEK_END => file.current_view().elements_before(file.disk.size()?) as i64,
        other => fail!(MPI_ERR_ARG, "{other} is none of MPI_SEEK_SET, MPI_SEEK_CUR and MPI_SEEK_END"),
    };
    match base.checked_add(offset) {
        Some(to) if to >= 0 => Ok(to),
        _ => fail!(MPI_ERR_ARG, "an offset of {offset} from {base} is before the beginning of the view"),
    }
}

/// `MPI_File_seek`.
pub fn file_seek(fh: FileHandle, offset: Offset, whence: c_int) -> Result {
    let file = file::resolve(fh)?;
    file.check_random()?;
    let current = *lock(&file.pointer);
    let to = destination(&file, offset, whence, current)?;
    *lock(&file.pointer) = to;
    Ok(())
}

/// `MPI_File_get_position`.
pub fn file_get_position(fh: FileHandle, offset: Output<Offset>) -> Result {
    let file = file::resolve(fh)?;
    file.check_random()?;
    let position = *lock(&file.pointer);
    offset.set(position)
}

/// `MPI_File_get_byte_offset`.
pub fn file_get_byte_offset(fh: FileHandle, offset: Offset, disp: Output<Offset>) -> Result {
    let file = file::resolve(fh)?;
    file.check_random()?;
    let view = file.current_view();
    match u64::try_from(offset) {
        Ok(offset) => disp.set(view.place(offset * view.element_size()) as Offset),
        Err(_) => fail!(MPI_ERR_ARG, "the offset is {offset}"),
    }
}

/// `MPI_File_seek_shared`.
pub fn file_seek_shared(fh: FileHandle, offset: Offset, whence: c_int) -> Result {
    let file = file::resolve(fh)?;
    let current = if whence == MPI_SEEK_CUR { file.shared()?.get()? } else { 0 };
    file.seek_shared(destination(&file, offset, whence, current)?)
}

/// `MPI_File_get_position_shared`.
pub fn file_get_position_shared(fh: FileHandle, offset: Output<Offset>) -> Result {
    offset.set(file::resolve(fh)?.shared()?.get()?)
}

/// `MPI_File_get_type_extent`.
pub fn file_get_type_extent(fh: FileHandle, datatype: DatatypeHandle, extent: CountOut) -> Result {
    let view = file::resolve(fh)?.current_view();
    let datatype = datatype::resolve(datatype)?;
    extent.set(view.representation.extent(&datatype)?)
}

/// `MPI_Register_datarep`. Errors go to the handler of `MPI_FILE_NULL`: no file that will use the representation exists
/// yet.
pub fn register_datarep(
    datarep: Input<c_char>,
    read_conversion_fn: Callback,
    write_conversion_fn: Callback,
    dtype_file_extent_fn: Callback,
    extra_state: *mut c_void,
    wide: bool,
) -> Result {
    let register = || -> Result {
        let name = datarep.text()?;
        if name.is_empty() || name.len() >= MPI_MAX_DATAREP_STRING as usize {
            fail!(MPI_ERR_ARG, "a name of {} characters is not one of a data representation", name.len());
        }
        if dtype_file_extent_fn == MPI_CONVERSION_FN_NULL {
            fail!(MPI_ERR_ARG, "there is no extent function");
        }
        let given = |function| (function != MPI_CONVERSION_FN_NULL).then_some(function);
        let (read, write) = (given(read_conversion_fn), given(write_conversion_fn));
        let state = extra_state.expose_provenance();
        representation::register(name, Functions { read, write, extent: dtype_file_extent_fn, state, wide })
    };
    register().map_err(without_file)
}
