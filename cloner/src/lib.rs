//! Copies a living, multi-threaded Linux process to another host while it runs, in user space and without privilege.
//!
//! It knows nothing of MPI. Three parts: the *agent* inside the process (crate `cloner-agent`), the *source*, which
//! reads the process from outside and sends its image, and the *destination*, a process that receives the image and
//! becomes the copy. `docs/cloning.md` has the life of a clone and what is carried.
#![doc = include_str!("../README.md")]

pub mod control;
pub mod destination;
mod difference;
pub mod dirty;
mod error;
pub mod host;
pub mod image;
pub mod launch;
pub mod maps;
pub mod net;
pub mod ranges;
mod refusal;
pub mod secure;
pub mod shared;
pub mod source;
mod sparse;
pub mod sys;

pub use difference::Difference;
pub use error::{During, Error, Operation, Phase, ProcessEnded, has_ended, told_of};
pub use refusal::Refusal;
