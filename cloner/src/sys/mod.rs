//! System calls for memory, and the restorer. `docs/unsafe.md` lists the unsafe code outside of this module.

pub mod barriers;
pub mod memory;
pub mod pagemap;
pub mod restorer;
