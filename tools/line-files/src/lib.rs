//! Files of lines outside of their store: in an object store, and the program's own, put back as they were.

pub mod remote;
pub mod undo;
