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

use crate::own::copy_status;
use crate::peers::{destinations, peers, sources};
use crate::section::{COMM_SELF, Copied, Lent, Section, Typed, refuse};
use crate::standard::*;
use fortran_binding::attributes::{attribute_out, attribute_to_c, keyval_to_c};
use fortran_binding::callbacks::{
    Context, cancel_request, conversion, copy_attribute, copy_attribute_int, delete_attribute, delete_attribute_int,
    file_extent, free_request, query_request, read_converted, read_converted_large, write_converted,
    write_converted_large,
};
use fortran_binding::handles::{
    count_from_one, give_error, give_handle, give_handles, handles, is_set, unless_in_place, unset_handles,
};
use fortran_binding::sentinels;
use fortran_binding::text::{Text, WordLists, Words, text, trimmed, with_end, without_end};
use fortran_binding::{Aint, Binding, Count, Handle, Offset};
use std::ffi::{c_char, c_int, c_void};

include!(concat!(env!("OUT_DIR"), "/procedures.rs"));
