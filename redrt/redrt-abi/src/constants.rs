//! The constants of the standard ABI, generated from `redrt/mpi-table/mpi-5.0.constants`.
#![allow(missing_docs)]

use super::{Callback, Offset, Status, ToolHandle};
use crate::handle::{
    CommHandle, DatatypeHandle, ErrhandlerHandle, FileHandle, GroupHandle, InfoHandle, MessageHandle, OpHandle,
    RequestHandle, SessionHandle, WinHandle,
};
use std::ffi::{c_char, c_int, c_void};

include!(concat!(env!("OUT_DIR"), "/constants.rs"));
