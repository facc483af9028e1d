//! The image of a process: a sequence of frames, in one stream or several. A socket is one place for it, a file
//! another.

pub mod check;
pub mod digest;
pub mod frame;
pub mod state;
pub mod stream;
