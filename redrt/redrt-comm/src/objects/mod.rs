//! Objects without communication: error handlers and codes, attributes, info, groups, and facts about the process.
//!
//! A function of the program (an error handler, an attribute's copy function) is always called with no lock held: it
//! may call MPI again.

pub mod attached;
pub mod attachment;
pub mod attributes;
pub mod errhandler;
pub mod error_codes;
pub mod group;
pub mod host;
pub mod info;
pub mod session;
