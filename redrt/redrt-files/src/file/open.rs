//! Opening and closing of files. Collective: all members open the file, or none.

use super::disk::{Creation, Disk};
use super::shared::{MakeCounter, SharedPointer};
use super::view::View;
use super::{FILES, File};
use redrt_abi::error::{Error, Result};
use redrt_abi::fail;
use redrt_abi::handle::FileHandle;
use redrt_abi::{
    MPI_ERR_AMODE, MPI_ERR_COMM, MPI_ERR_FILE_EXISTS, MPI_ERR_NO_SUCH_FILE, MPI_ERR_NOT_SAME, MPI_MODE_APPEND,
    MPI_MODE_CREATE, MPI_MODE_DELETE_ON_CLOSE, MPI_MODE_EXCL, MPI_MODE_RDONLY, MPI_MODE_RDWR, MPI_MODE_SEQUENTIAL,
    MPI_MODE_UNIQUE_OPEN, MPI_MODE_WRONLY,
};
use redrt_comm::comm::cards::exchange;
use redrt_comm::comm::{self, Comm};
use redrt_comm::objects::attached::Attached;
use redrt_comm::objects::info::Info;
use redrt_engine as engine;
use redrt_process::lock;
use std::ffi::c_int;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

const MODES: c_int = MPI_MODE_RDONLY
    | MPI_MODE_RDWR
    | MPI_MODE_WRONLY
    | MPI_MODE_CREATE
    | MPI_MODE_EXCL
    | MPI_MODE_DELETE_ON_CLOSE
    | MPI_MODE_UNIQUE_OPEN
    | MPI_MODE_SEQUENTIAL
    | MPI_MODE_APPEND;

/// Fails unless the access mode is one of MPI-5.0 section 14.2.1.
fn check_mode(amode: c_int) -> Result {
    let has = |mode: c_int| amode & mode != 0;
    let ways = [MPI_MODE_RDONLY, MPI_MODE_RDWR, MPI_MODE_WRONLY].into_iter().filter(|mode| has(*mode)).count();
    if amode & !MODES != 0 || ways != 1 {
        fail!(MPI_ERR_AMODE, "{amode:#x} is no access mode: one of RDONLY, RDWR and WRONLY is needed");
    }
    if has(MPI_MODE_RDONLY) && (has(MPI_MODE_CREATE) || has(MPI_MODE_EXCL)) {
        fail!(MPI_ERR_AMODE, "MPI_MODE_CREATE and MPI_MODE_EXCL do not go with MPI_MODE_RDONLY");
    }
    if has(MPI_MODE_RDWR) && has(MPI_MODE_SEQUENTIAL) {
        fail!(MPI_ERR_AMODE, "MPI_MODE_SEQUENTIAL does not go with MPI_MODE_RDWR");
    }
    Ok(())
}

/// The absolute path of a file name. The name of a file system before it (`ufs:name`) is ignored: all are treated
/// alike.
pub fn absolute(name: &str) -> PathBuf {
    let known = ["ufs:", "nfs:", "file:", "unix:"];
    let name = known.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    std::path::absolute(name).unwrap_or_else(|_| PathBuf::from(name))
}

/// Fails at all members, with one member's error, if that member has failed.
fn all_or_none(comm: &Comm, own: Result) -> Result {
    let code = own.as_ref().err().map_or(0, Error::code);
    let cards = exchange(comm, [code as u64, 0, 0, 0])?;
    own?;
    match cards.iter().position(|card| card[0] != 0) {
        None => Ok(()),
        Some(rank) => fail!(cards[rank][0] as c_int, "rank {rank} of {} cannot open the file", comm.label()),
    }
}

/// Opens a file. Collective: all members open it, or none. `make` makes the counter of its shared pointer.
pub fn open(
    parent: &Arc<Comm>,
    name: &str,
    amode: c_int,
    info: Option<Arc<Info>>,
    make: MakeCounter,
) -> Result<Arc<File>> {
    if parent.remote.is_some() {
        fail!(MPI_ERR_COMM, "{} is an intercommunicator", parent.label());
    }
    let handler = super::attached(FileHandle::NULL).map(|attached| attached.errhandler());
    let attached = Arc::new(handler.map_or_else(Attached::new, Attached::with_errhandler));
    parent.reclaim()?;
    let comm = parent.duplicate(Arc::new(Attached::new()));
    *lock(&comm.name) = format!("the file {name}");
    let disk = Disk::new(absolute(name), amode & MPI_MODE_WRONLY == 0, amode & MPI_MODE_RDONLY == 0);
    let opened = open_everywhere(&comm, &disk, amode);
    if opened.is_err() {
        disk.close();
        let _ = comm::remove(comm.handle());
    }
    opened?;
    let shared = SharedPointer::new(&comm, make);
    let file = Arc::new(File {
        handle: OnceLock::new(),
        comm,
        amode,
        attached,
        info: Mutex::new(Arc::new(info.map_or_else(Info::default, |info| info.duplicate()))),
        disk,
        view: Mutex::new(Arc::new(View::of_bytes())),
        pointer: Mutex::new(0),
        shared,
        is_atomic: Mutex::new(false),
        split: Mutex::default(),
    });
    let _ = file.handle.set(FileHandle(FILES.insert(Arc::clone(&file))));
    if amode & MPI_MODE_APPEND != 0 {
        let end = file.disk.size()? as i64;
        *lock(&file.pointer) = end;
        if file.shared.is_ok() {
            file.seek_shared(end)?;
        }
    }
    Ok(file)
}

/// Opens the file at rank 0, which makes it if the mode allows that, then at the other ranks.
fn open_everywhere(comm: &Comm, disk: &Disk, amode: c_int) -> Result {
    let mode = check_mode(amode);
    let cards = exchange(comm, [amode as u64, 0, 0, 0])?;
    if cards.iter().any(|card| card[0] != amode as u64) {
        fail!(MPI_ERR_NOT_SAME, "the ranks open the file with different access modes");
    }
    mode?;
    let first = if comm.rank == 0 { make(disk, amode) } else { Ok(()) };
    all_or_none(comm, first)?;
    let others = if comm.rank == 0 { Ok(()) } else { disk.open(Creation::No) };
    all_or_none(comm, others)
}

fn make(disk: &Disk, amode: c_int) -> Result {
    if amode & MPI_MODE_CREATE == 0 {
        return disk.open(Creation::No);
    }
    if amode & MPI_MODE_EXCL == 0 {
        return disk.open(Creation::Yes);
    }
    if !engine::cell().lock().is_replicated() {
        return disk.open(Creation::New);
    }
    if disk.exists()? {
        fail!(MPI_ERR_FILE_EXISTS, "{} exists", disk.name());
    }
    disk.open(Creation::Yes)
}

/// Deletes a file. Fails with `MPI_ERR_NO_SUCH_FILE` if none exists.
pub fn delete(name: &str) -> Result {
    let disk = Disk::new(absolute(name), true, false);
    if !disk.exists()? {
        fail!(MPI_ERR_NO_SUCH_FILE, "there is no {}", disk.name());
    }
    disk.delete()
}

/// Closes a file. Collective.
pub fn close(file: &File) -> Result {
    // Written bytes are in the kernel, where later readers find them.
    if let Ok(shared) = &file.shared {
        shared.close()?;
    }
    file.disk.close();
    exchange(&file.comm, [0; 4])?;
    let deletes = file.amode & MPI_MODE_DELETE_ON_CLOSE != 0 && file.comm.rank == 0;
    let deleted = if deletes { file.disk.delete() } else { Ok(()) };
    FILES.remove(file.handle().0);
    let _ = comm::remove(file.comm.handle());
    deleted
}
