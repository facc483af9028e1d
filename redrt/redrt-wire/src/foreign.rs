//! Traces in a program of an MPI that redrt does not stand in for.

use serde::{Deserialize, Serialize};

/// The trace of another MPI in a program, in words that follow on the program's name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Foreign {
    /// A library that the program loads.
    #[error("is built for {family} ({name})")]
    Library {
        /// Its file name.
        name: String,
        /// Name of the MPI that it belongs to.
        family: String,
    },
    /// A module of Fortran that depends on the compiler.
    #[error("is built for MPICH's module mpi_f08 (libmpifort.so.12)")]
    Module,
    /// An MPI linked into the program itself.
    #[error("has an MPI linked into it")]
    Static,
    /// A program for other processors, or for another mode of these.
    #[error("is a program for {0}")]
    Machine(String),
    /// An MPI that redrt stands in for, with a C library that redrt's libraries are not built for.
    #[error("is built with musl")]
    Musl,
}
