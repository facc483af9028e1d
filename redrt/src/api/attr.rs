//! Attributes (MPI-5.0 section 7.7) and the predefined ones (section 9.1.2).

use super::datatype::attributes as type_attributes;
use super::errhandler::attached;
use redrt_abi::error::{Result, Scope};
use redrt_abi::fail;
use redrt_abi::handle::{CommHandle, DatatypeHandle, WinHandle};
use redrt_abi::*;
use redrt_comm::objects::attributes::{self, ObjectKind};
use redrt_comm::objects::error_codes;
use redrt_comm::objects::host;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

fn create(
    kind: ObjectKind,
    copy: Callback,
    delete: Callback,
    keyval: Output<c_int>,
    extra_state: *mut c_void,
) -> Result {
    keyval.set(attributes::create_keyval(kind, copy, delete, extra_state.expose_provenance()))
}

fn free(kind: ObjectKind, keyval: Output<c_int>) -> Result {
    attributes::free_keyval(keyval.get()?, kind)?;
    keyval.set(MPI_KEYVAL_INVALID)
}

fn put_found(found: Option<usize>, value: *mut c_void, flag: Output<c_int>) -> Result {
    if let Some(found) = found {
        Output::<usize>::from_address(value).set(found)?;
    }
    flag.set(c_int::from(found.is_some()))
}

/// The predefined attributes of communicators are addresses of ints.
const PREDEFINED: [c_int; 7] =
    [MPI_TAG_UB, MPI_IO, MPI_HOST, MPI_WTIME_IS_GLOBAL, MPI_APPNUM, MPI_LASTUSEDCODE, MPI_UNIVERSE_SIZE];

process_local! {
    static PREDEFINED_VALUES: [AtomicI32; 7] = [const { AtomicI32::new(0) }; 7];
}

/// The value that `MPI_Comm_get_attr` gives for a predefined key: the address of an int, or `None` when it is not set.
fn predefined(index: usize) -> Option<usize> {
    let value = match PREDEFINED[index] {
        // Section 9.1.2: MPI_ANY_SOURCE means that every process can do the I/O of its language.
        MPI_IO => Some(MPI_ANY_SOURCE),
        MPI_HOST => Some(MPI_PROC_NULL),
        MPI_LASTUSEDCODE => Some(error_codes::last_used()),
        keyval => host::get().predefined_attribute(keyval),
    };
    PREDEFINED_VALUES[index].store(value?, Ordering::Relaxed);
    Some(PREDEFINED_VALUES[index].as_ptr().expose_provenance())
}

/// `MPI_Comm_create_keyval`.
pub fn comm_create_keyval(copy: Callback, delete: Callback, keyval: Output<c_int>, extra_state: *mut c_void) -> Result {
    create(ObjectKind::Comm, copy, delete, keyval, extra_state)
}

/// `MPI_Comm_free_keyval`.
pub fn comm_free_keyval(keyval: Output<c_int>) -> Result {
    free(ObjectKind::Comm, keyval)
}

/// `MPI_Comm_get_attr`.
pub fn comm_get_attr(comm: CommHandle, keyval: c_int, value: *mut c_void, flag: Output<c_int>) -> Result {
    let attached = attached(Scope::Comm(comm))?;
    if let Some(index) = PREDEFINED.iter().position(|predefined| *predefined == keyval) {
        return put_found(predefined(index), value, flag);
    }
    put_found(attached.attributes.get(keyval, ObjectKind::Comm)?, value, flag)
}

/// `MPI_Comm_set_attr`.
pub fn comm_set_attr(comm: CommHandle, keyval: c_int, value: *mut c_void) -> Result {
    if PREDEFINED.contains(&keyval) {
        fail!(MPI_ERR_KEYVAL, "predefined attributes cannot be changed");
    }
    let attached = attached(Scope::Comm(comm))?;
    attached.attributes.set(keyval, ObjectKind::Comm, comm.0, value.expose_provenance())
}

/// `MPI_Comm_delete_attr`.
pub fn comm_delete_attr(comm: CommHandle, keyval: c_int) -> Result {
    attached(Scope::Comm(comm))?.attributes.delete(keyval, ObjectKind::Comm, comm.0)
}

/// `MPI_Keyval_create`, the deprecated name.
pub fn keyval_create(copy: Callback, delete: Callback, keyval: Output<c_int>, extra_state: *mut c_void) -> Result {
    comm_create_keyval(copy, delete, keyval, extra_state)
}

/// `MPI_Keyval_free`, the deprecated name.
pub fn keyval_free(keyval: Output<c_int>) -> Result {
    comm_free_keyval(keyval)
}

/// `MPI_Attr_get`, the deprecated name.
pub fn attr_get(comm: CommHandle, keyval: c_int, value: *mut c_void, flag: Output<c_int>) -> Result {
    comm_get_attr(comm, keyval, value, flag)
}

/// `MPI_Attr_put`, the deprecated name.
pub fn attr_put(comm: CommHandle, keyval: c_int, value: *mut c_void) -> Result {
    comm_set_attr(comm, keyval, value)
}

/// `MPI_Attr_delete`, the deprecated name.
pub fn attr_delete(comm: CommHandle, keyval: c_int) -> Result {
    comm_delete_attr(comm, keyval)
}

/// `MPI_Win_create_keyval`.
pub fn win_create_keyval(copy: Callback, delete: Callback, keyval: Output<c_int>, extra_state: *mut c_void) -> Result {
    create(ObjectKind::Win, copy, delete, keyval, extra_state)
}

/// `MPI_Win_free_keyval`.
pub fn win_free_keyval(keyval: Output<c_int>) -> Result {
    free(ObjectKind::Win, keyval)
}

/// The predefined attributes of a window (MPI-5.0 §12.2.6): its base, and addresses of the others.
fn fact(win: WinHandle, keyval: c_int) -> Result<Option<usize>> {
    let window = redrt_window::resolve(win)?;
    let facts = &window.facts;
    Ok(match keyval {
        MPI_WIN_BASE => Some(facts.base),
        MPI_WIN_SIZE => Some((&raw const facts.size).expose_provenance()),
        MPI_WIN_DISP_UNIT => Some((&raw const facts.unit).expose_provenance()),
        MPI_WIN_CREATE_FLAVOR => Some((&raw const facts.flavor).expose_provenance()),
        MPI_WIN_MODEL => Some((&raw const facts.model).expose_provenance()),
        _ => None,
    })
}

const WINDOW_FACTS: [c_int; 5] = [MPI_WIN_BASE, MPI_WIN_SIZE, MPI_WIN_DISP_UNIT, MPI_WIN_CREATE_FLAVOR, MPI_WIN_MODEL];

fn check_no_fact(keyval: c_int) -> Result {
    if WINDOW_FACTS.contains(&keyval) {
        fail!(MPI_ERR_KEYVAL, "predefined attributes cannot be changed");
    }
    Ok(())
}

/// `MPI_Win_get_attr`.
pub fn win_get_attr(win: WinHandle, keyval: c_int, value: *mut c_void, flag: Output<c_int>) -> Result {
    if let Some(found) = fact(win, keyval)? {
        return put_found(Some(found), value, flag);
    }
    put_found(attached(Scope::Win(win))?.attributes.get(keyval, ObjectKind::Win)?, value, flag)
}

/// `MPI_Win_set_attr`.
pub fn win_set_attr(win: WinHandle, keyval: c_int, value: *mut c_void) -> Result {
    check_no_fact(keyval)?;
    attached(Scope::Win(win))?.attributes.set(keyval, ObjectKind::Win, win.0, value.expose_provenance())
}

/// `MPI_Win_delete_attr`.
pub fn win_delete_attr(win: WinHandle, keyval: c_int) -> Result {
    check_no_fact(keyval)?;
    attached(Scope::Win(win))?.attributes.delete(keyval, ObjectKind::Win, win.0)
}

/// `MPI_Type_create_keyval`.
pub fn type_create_keyval(copy: Callback, delete: Callback, keyval: Output<c_int>, extra_state: *mut c_void) -> Result {
    create(ObjectKind::Datatype, copy, delete, keyval, extra_state)
}

/// `MPI_Type_free_keyval`.
pub fn type_free_keyval(keyval: Output<c_int>) -> Result {
    free(ObjectKind::Datatype, keyval)
}

/// `MPI_Type_get_attr`.
pub fn type_get_attr(datatype: DatatypeHandle, keyval: c_int, value: *mut c_void, flag: Output<c_int>) -> Result {
    put_found(type_attributes::get(datatype, keyval)?, value, flag)
}

/// `MPI_Type_set_attr`.
pub fn type_set_attr(datatype: DatatypeHandle, keyval: c_int, value: *mut c_void) -> Result {
    type_attributes::set(datatype, keyval, value)
}

/// `MPI_Type_delete_attr`.
pub fn type_delete_attr(datatype: DatatypeHandle, keyval: c_int) -> Result {
    type_attributes::delete(datatype, keyval)
}
