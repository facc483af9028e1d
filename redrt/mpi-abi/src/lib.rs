//! The shared library that programs load, `libmpi_abi.so.1`: exactly the exports of `redrt`.
//!
//! It is a crate of its own because cargo builds a shared library under one name for all features. The installed
//! library has no simulation in it; the tests build `redrt` with one.
#![forbid(unsafe_code)]

use redrt as _;
