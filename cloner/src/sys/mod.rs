//! Everything that speaks to the kernel about memory, and the restorer. All unsafe code of this crate is in here and in
//! `destination/receive.rs`.

pub mod barriers;
pub mod memory;
pub mod pagemap;
pub mod restorer;
