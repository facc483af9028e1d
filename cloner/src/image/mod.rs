//! The image of a process: a sequence of frames, in one or several streams. A stream goes to a socket or to a file.

pub mod check;
pub(crate) mod compress;
pub mod digest;
pub mod digests;
pub mod frame;
pub mod known;
pub mod state;
pub mod stream;
