//! The standard ABI: handles whose values fit an `INTEGER` and are their own numbers in Fortran, statuses of eight
//! integers, and a common block for each sentinel.

use fortran_binding::{Handle, blocks};
use std::ffi::c_int;

/// A status: eight integers in all three forms, C, array and type.
pub type Status = [c_int; 8];

/// A handle of any kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Object(pub usize);

impl Handle for Object {
    const UNSET: Self = Self(usize::MAX);

    #[inline]
    fn of_fortran(number: c_int) -> Self {
        Self(number as isize as usize)
    }

    #[inline]
    fn to_fortran(self) -> c_int {
        self.0 as c_int
    }
}

/// `MPI_Comm`
pub type Comm = Object;
/// `MPI_Datatype`
pub type Datatype = Object;
/// `MPI_Errhandler`
pub type Errhandler = Object;
/// `MPI_File`
pub type File = Object;
/// `MPI_Group`
pub type Group = Object;
/// `MPI_Info`
pub type Info = Object;
/// `MPI_Message`
pub type Message = Object;
/// `MPI_Op`
pub type Op = Object;
/// `MPI_Request`
pub type Request = Object;
/// `MPI_Session`
pub type Session = Object;
/// `MPI_Win`
pub type Win = Object;

blocks! {
    redrt_mpi_bottom_: 4 { Bottom at 0 }
    redrt_mpi_in_place_: 4 { InPlace at 0 }
    redrt_mpi_buffer_automatic_: 4 { BufferAutomatic at 0 }
    redrt_mpi_errcodes_ignore_: 4 { ErrcodesIgnore at 0 }
    redrt_mpi_unweighted_: 4 { Unweighted at 0 }
    redrt_mpi_weights_empty_: 4 { WeightsEmpty at 0 }
    redrt_mpi_argv_null_: 4 { NoArguments at 0 }
    redrt_mpi_argvs_null_: 4 { NoArguments at 0 }
    redrt_mpi_status_ignore_: 32 { StatusIgnore at 0 }
    redrt_mpi_statuses_ignore_: 32 { StatusIgnore at 0 }
}

include!(concat!(env!("OUT_DIR"), "/binding.rs"));
