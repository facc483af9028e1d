//! The objects of MPI: communicators and their collectives, datatypes, operators, and the state that all objects have.
//!
//! ```text
//!   objects ── datatype ── op          handlers, attributes, info, groups; types; operators of reductions
//!      └─────── comm ── coll           members, contexts, places on boards; the collectives, over `Peers`
//! ```
//! In: handles and arguments that were checked. Out: objects behind handles, and collectives as futures, which
//! `redrt::api` waits for or begins. Windows and files are crates above this one.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

#[macro_use]
extern crate redrt_process;

pub mod coll;
pub mod comm;
pub mod datatype;
pub mod objects;
pub mod op;
