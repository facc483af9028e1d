//! The procedures, and the declarations of the C functions; both generated.
#![allow(
    missing_docs,
    unused_variables,
    unused_mut,
    clippy::missing_safety_doc,
    clippy::too_many_arguments,
    clippy::unnecessary_cast,
    clippy::let_unit_value,
    clippy::deref_addrof
)]

use crate::attributes::{attribute_to_c, predefined_or_own};
use crate::callbacks::{
    Context, cancel_request, conversion, copy_attribute, copy_attribute_int, delete_attribute, delete_attribute_int,
    file_extent, free_request, query_request, read_converted, read_converted_large, write_converted,
    write_converted_large,
};
use crate::handles::{
    UNDEFINED, UNSET, count_from_one, destinations, give_error, give_handle, give_handles, handle, handles, is_set,
    peers, sources, unless_in_place, unset_handles,
};
use crate::own::copy_status;
use crate::section::{COMM_SELF, Copied, Lent, Section, Typed, refuse};
use crate::sentinels;
use crate::text::{Text, WordLists, Words, text, trimmed, with_end, without_end};
use crate::{Aint, Count, Offset, Status};
use std::ffi::{c_char, c_int, c_void};

include!(concat!(env!("OUT_DIR"), "/procedures.rs"));
