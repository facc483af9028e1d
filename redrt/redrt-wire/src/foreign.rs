//! What a program has of an MPI that redrt does not stand in for.

use serde::{Deserialize, Serialize};

/// What another MPI has left in a program, in words that follow on the program's name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Foreign {
    /// It loads this library.
    #[error("is built for {family} ({name})")]
    Library {
        /// Its file name.
        name: String,
        /// Whose it is.
        family: String,
    },
    /// A module of Fortran that depends on the compiler.
    #[error("is built for MPICH's module mpi_f08 (libmpifort.so.12)")]
    Module,
    /// An MPI is linked into the program itself.
    #[error("has an MPI linked into it")]
    Static,
    /// It is for other processors, or for another mode of these.
    #[error("is a program for {0}")]
    Machine(String),
    /// An MPI that redrt has, and a C library that redrt's libraries are not made for.
    #[error("is built with musl")]
    Musl,
}
