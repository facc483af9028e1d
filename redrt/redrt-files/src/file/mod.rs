//! Files (MPI-5.0 chapter 14), backed by POSIX files that all ranks reach.
//!
//! ```text
//!   MPI_File_write_at ──▶ packed bytes ──▶ view.rs: their places ──▶ disk.rs: pwrite, by one replica of the rank
//!   MPI_File_read     ◀── unpacked     ◀── view.rs: their places ◀── disk.rs: pread, and a decision for siblings
//! ```
//! Each rank has the file open for itself, and reads and writes by position. In a replicated world a rank's leader does
//! that, and its siblings take the outcome like any other from outside (`decide::outside`). If a leader dies after a
//! write that is not decided yet, the next leader writes again: the same bytes at the same place, before any
//! consequence has left.
//!
//! The shared pointer is in memory of rank 0, reached through a window (`shared.rs`). The only other messages are those
//! of the collective calls themselves. Nonblocking calls are complete when they return, which the standard allows.

pub mod access;
pub(crate) mod disk;
pub mod open;
pub mod representation;
pub mod shared;
pub mod view;
pub(crate) mod witness;

use disk::Disk;
use redrt_abi::MPI_ERR_FILE;
use redrt_abi::error::{Error, Result};
use redrt_abi::handle::{FileHandle, HandleTable};
use redrt_comm::comm::Comm;
use redrt_comm::objects::attached::Attached;
use redrt_comm::objects::errhandler::Errhandler;
use redrt_comm::objects::info::Info;
use redrt_process::lock;
use shared::SharedPointer;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, OnceLock};
use view::View;

/// An open file of this process.
pub struct File {
    handle: OnceLock<FileHandle>,
    /// Communicator of the file's own, with its members.
    pub comm: Arc<Comm>,
    /// `MPI_MODE_...`.
    pub amode: c_int,
    /// Error handler of the file.
    pub attached: Arc<Attached>,
    /// Hints of the program.
    pub info: Mutex<Arc<Info>>,
    /// The file in the file system.
    pub disk: Disk,
    /// View of this process.
    pub view: Mutex<Arc<View>>,
    /// The individual file pointer, in elements of the view.
    pub pointer: Mutex<i64>,
    /// The shared file pointer, or the error with which its creation failed.
    pub shared: Result<SharedPointer>,
    /// True in atomic mode: conflicting accesses exclude each other.
    pub is_atomic: Mutex<bool>,
    /// The split collective that has begun; `None` if there is none.
    pub split: Mutex<Option<Split>>,
}

/// A split collective access between its begin and its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Split {
    /// Name of the function that ends it.
    pub ends_by: &'static str,
    /// Number of bytes moved, the result for the end.
    pub bytes: u64,
}

process_local! {
    static FILES: HandleTable<File> = HandleTable::new();
}

/// The file with this handle. Fails with `MPI_ERR_FILE` if none exists.
pub fn resolve(handle: FileHandle) -> Result<Arc<File>> {
    FILES.get(handle.0).ok_or_else(|| {
        if handle == FileHandle::NULL {
            Error::new(MPI_ERR_FILE, "the file is MPI_FILE_NULL")
        } else {
            Error::new(MPI_ERR_FILE, format!("{:#x} is not a file, or it has been closed", handle.0))
        }
    })
}

/// Error handler and attributes of a file; `None` for an invalid handle. `MPI_FILE_NULL` has the initial error handler
/// of files (MPI-5.0 section 14.7).
pub fn attached(handle: FileHandle) -> Option<Arc<Attached>> {
    process_local! {
        static INITIAL: OnceLock<Arc<Attached>> = OnceLock::new();
    }
    if handle == FileHandle::NULL {
        let make = || Arc::new(Attached::with_errhandler(Arc::new(Errhandler::Return)));
        return Some(Arc::clone(INITIAL.get_or_init(make)));
    }
    resolve(handle).ok().map(|file| Arc::clone(&file.attached))
}

impl File {
    /// Handle of the file.
    pub fn handle(&self) -> FileHandle {
        *self.handle.get().expect("a file is registered when it is opened")
    }

    /// The view that the program has set last (`MPI_File_set_view`).
    pub fn current_view(&self) -> Arc<View> {
        Arc::clone(&lock(&self.view))
    }

    /// The shared pointer. Fails if it could not be made.
    pub fn shared(&self) -> Result<&SharedPointer> {
        match &self.shared {
            Ok(shared) => Ok(shared),
            Err(error) => {
                Err(Error::new(error.code(), format!("there is no shared file pointer: {}", error.message())))
            }
        }
    }
}
