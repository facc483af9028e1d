//! The shared library that programs load, `libmpi_abi.so.1`: what `redrt` exports, and nothing else.
//!
//! It is a crate of its own since cargo gives a shared library one name whatever features it was built with. The one
//! that is installed has no simulation in it, and the tests build `redrt` with one.
#![forbid(unsafe_code)]

use redrt as _;
