//! The image of a process: a sequence of frames, in one stream or several. A socket is one place for it, a file
//! another.

pub mod check;
pub(crate) mod compress;
pub mod digest;
pub mod digests;
pub mod frame;
pub mod known;
pub mod state;
pub mod stream;
