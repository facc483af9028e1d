//! Type maps (MPI-5.0 section 5.1): the basic elements of one element of a datatype and the places of its bytes. And
//! reductions of such elements.
//!
//! In: basic types, and the arguments of MPI's type constructors. Out: a [`TypeMap`], which packs and unpacks, counts
//! elements, converts to and from external32, and has a [`signature::Signature`] to compare with others. A
//! [`reduce::Operator`] combines elements of basic types, and pairs of a value and its index.
//!
//! ```text
//!  basic ── sequence ─┐
//!             │       ├─ map ─┬─ construct, distribute     a TypeMap from others
//!         signature   │       └─ external                  conversion of packed data
//!  layout ── pack ────┘
//!
//!  basic ── reduce                                        combines elements in memory
//! ```
//!
//! A type map is a value: it has no handle, name, attributes or committed state, and does not remember its
//! construction. Those belong to MPI's datatype objects, in the library above. MPI's constants are unknown here too; an
//! [`Error`] has the reason, and the library chooses the error class.
//!
//! # Addresses
//!
//! Functions that copy and combine take the program's buffers as bare pointers, and are safe to call. By passing
//! buffer, count and datatype to MPI, the program has promised that every byte of the type map is there. No code in
//! between can check that, and an `unsafe` block at every call would only repeat it. A caller outside of an MPI call
//! makes the same promise itself.

pub mod basic;
mod construct;
mod distribute;
mod error;
mod external;
mod fortran;
pub mod layout;
mod map;
pub mod pack;
pub mod reduce;
pub mod sequence;
pub mod signature;
#[cfg(test)]
mod tests;

pub use construct::{Block, contiguous, hindexed, hvector, indexed, pair, resized, single, struct_of};
pub use distribute::{DistributedArray, Distribution, Order, darray, subarray};
pub use error::{Error, Result};
pub use external::{external_size, from_external, to_external};
pub use fortran::{integer_kind, real_kind};
pub use map::TypeMap;
