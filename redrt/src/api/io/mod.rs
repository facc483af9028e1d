//! Files (MPI-5.0 chapter 14): checks of arguments, and calls of `redrt_files::file`.

mod access;
mod counter;
mod manage;
mod position;

pub use access::*;
pub use manage::*;
pub use position::*;
