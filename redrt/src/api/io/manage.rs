//! Opening and closing of files; their sizes, hints and other properties (MPI-5.0 section 14.2).

use super::counter::in_window;
use redrt_abi::error::{Error, Result, Scope};
use redrt_abi::fail;
use redrt_abi::handle::{CommHandle, FileHandle, GroupHandle, InfoHandle};
use redrt_abi::{Input, MPI_ERR_ARG, MPI_ERR_NOT_SAME, MPI_ERR_OTHER, Offset, Output};
use redrt_comm::comm;
use redrt_comm::comm::cards::exchange;
use redrt_comm::objects::{group, info};
use redrt_files::file::access::Way;
use redrt_files::file::{self, File, open};
use redrt_process::lock;
use std::ffi::{c_char, c_int};
use std::sync::Arc;

/// An error without a file goes to the handler of `MPI_FILE_NULL` (MPI-5.0 section 14.7).
pub(super) fn without_file(error: Error) -> Error {
    error.in_scope(Scope::File(FileHandle::NULL))
}

/// `MPI_File_open`.
pub fn file_open(
    comm: CommHandle,
    filename: Input<c_char>,
    amode: c_int,
    info: InfoHandle,
    fh: Output<FileHandle>,
) -> Result {
    let open = || -> Result<Arc<File>> {
        let (parent, name) = (comm::resolve(comm)?, filename.text()?);
        open::open(&parent, &name, amode, info::resolve_hints(info)?, in_window)
    };
    fh.set(open().map_err(without_file)?.handle())
}

/// `MPI_File_close`.
pub fn file_close(fh: Output<FileHandle>) -> Result {
    let file = file::resolve(fh.get()?)?;
    if let Some(split) = *lock(&file.split) {
        fail!(MPI_ERR_OTHER, "{} was not called yet", split.ends_by);
    }
    let closed = open::close(&file);
    fh.set(FileHandle::NULL)?;
    closed.map_err(without_file)
}

/// `MPI_File_delete`.
pub fn file_delete(filename: Input<c_char>, info: InfoHandle) -> Result {
    let delete = || -> Result {
        info::resolve_hints(info)?;
        open::delete(&filename.text()?)
    };
    delete().map_err(without_file)
}

/// Checks that all ranks pass the same size. Collective.
fn same_size(file: &File, size: Offset) -> Result<u64> {
    file.check_way(Way::Write)?;
    let sizes = exchange(&file.comm, [size as u64, 0, 0, 0])?;
    if sizes.iter().any(|card| card[0] != size as u64) {
        fail!(MPI_ERR_NOT_SAME, "the ranks name different sizes");
    }
    match u64::try_from(size) {
        Ok(size) => Ok(size),
        Err(_) => fail!(MPI_ERR_ARG, "the size is {size}"),
    }
}

/// Runs `act` on rank 0, and returns its error on all ranks. Collective.
fn by_first(file: &File, act: impl FnOnce() -> Result) -> Result {
    let own = if file.comm.rank == 0 { act() } else { Ok(()) };
    let code = own.as_ref().err().map_or(0, Error::code);
    let cards = exchange(&file.comm, [code as u64, 0, 0, 0])?;
    own?;
    match cards[0][0] {
        0 => Ok(()),
        code => fail!(code as c_int, "rank 0 of {} has failed", file.comm.label()),
    }
}

/// `MPI_File_set_size`.
pub fn file_set_size(fh: FileHandle, size: Offset) -> Result {
    let file = file::resolve(fh)?;
    let size = same_size(&file, size)?;
    by_first(&file, || file.disk.set_size(size))
}

/// `MPI_File_preallocate`.
pub fn file_preallocate(fh: FileHandle, size: Offset) -> Result {
    let file = file::resolve(fh)?;
    let size = same_size(&file, size)?;
    by_first(&file, || file.disk.preallocate(size))
}

/// `MPI_File_get_size`.
pub fn file_get_size(fh: FileHandle, size: Output<Offset>) -> Result {
    size.set(file::resolve(fh)?.disk.size()? as Offset)
}

/// `MPI_File_get_group`.
pub fn file_get_group(fh: FileHandle, group: Output<GroupHandle>) -> Result {
    let file = file::resolve(fh)?;
    let members = file.comm.members.iter().map(|member| member.0).collect();
    group.set(group::register(Arc::new(group::Group::list(members))))
}

/// `MPI_File_get_amode`.
pub fn file_get_amode(fh: FileHandle, amode: Output<c_int>) -> Result {
    amode.set(file::resolve(fh)?.amode)
}

/// `MPI_File_set_info`.
pub fn file_set_info(fh: FileHandle, info: InfoHandle) -> Result {
    let file = file::resolve(fh)?;
    let hints = info::resolve(info)?;
    lock(&file.info).update(&hints);
    Ok(())
}

/// `MPI_File_get_info`.
pub fn file_get_info(fh: FileHandle, info_used: Output<InfoHandle>) -> Result {
    let hints = lock(&file::resolve(fh)?.info).duplicate();
    info_used.set(info::register(hints))
}

/// `MPI_File_set_atomicity`.
pub fn file_set_atomicity(fh: FileHandle, flag: c_int) -> Result {
    let file = file::resolve(fh)?;
    let flags = exchange(&file.comm, [u64::from(flag != 0), 0, 0, 0])?;
    if flags.iter().any(|card| card[0] != u64::from(flag != 0)) {
        fail!(MPI_ERR_NOT_SAME, "the ranks set different modes");
    }
    *lock(&file.is_atomic) = flag != 0;
    Ok(())
}

/// `MPI_File_get_atomicity`.
pub fn file_get_atomicity(fh: FileHandle, flag: Output<c_int>) -> Result {
    let is_atomic = *lock(&file::resolve(fh)?.is_atomic);
    flag.set(c_int::from(is_atomic))
}

/// `MPI_File_sync`: on return at all ranks, data written before by any of them are on the device and visible to all.
pub fn file_sync(fh: FileHandle) -> Result {
    let file = file::resolve(fh)?;
    let synchronized = file.disk.sync();
    exchange(&file.comm, [0; 4])?;
    synchronized
}
