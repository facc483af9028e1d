//! Files (MPI-5.0 chapter 14): arguments in, what `redrt_files::file` does with them.

mod access;
mod counter;
mod manage;
mod position;

pub use access::*;
pub use manage::*;
pub use position::*;
