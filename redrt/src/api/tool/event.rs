//! Events (MPI-5.0 §15.3.8) of this process and its job; see [`redrt_runtime::events`].

use super::category::Category;
use super::enumeration::Enumeration;
use super::{check_initialized, entry, index_of, put_text, set, value_at};
use redrt_abi::error::{Error, Result};
use redrt_abi::handle::{DatatypeHandle, InfoHandle};
use redrt_abi::*;
use redrt_comm::objects::info::{self, Info};
use redrt_process::clock::monotonic_ns;
use redrt_runtime::events::{self, ELEMENT_BYTES, Event, EventKind, Registration, SOURCE};
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

/// A type of events.
pub(super) struct Type {
    name: &'static str,
    pub(super) category: Category,
    description: &'static str,
    /// Names of the elements, each an `MPI_INT64_T`.
    pub(super) elements: Enumeration,
}

const fn of(name: &'static str, category: Category, description: &'static str, items: &'static [&'static str]) -> Type {
    Type { name, category, description, elements: Enumeration { name, items } }
}

/// All types, by index, in the order of [`EventKind::ALL`].
pub(super) static TYPES: [Type; EventKind::ALL.len()] = [
    of(
        "redrt_replica_lost",
        Category::Replication,
        "a replica died, was ended or went elsewhere",
        &["rank", "replica", "view"],
    ),
    of(
        "redrt_replica_joined",
        Category::Replication,
        "a copy of a replica takes part from now on",
        &["rank", "replica", "view"],
    ),
    of(
        "redrt_mismatch_found",
        Category::Verification,
        "replicas of a sender differ in a message to this process; culprit is -1 when it is unknown; finding is 0 for \
         a corrupt replica, 1 for the way between, 2 if it cannot be told",
        &["sender", "culprit", "finding", "tag", "number", "bytes"],
    ),
    of(
        "redrt_paths_parted",
        Category::Verification,
        "this replica does something else than its leader",
        &["rank", "replica"],
    ),
    of(
        "redrt_link_restored",
        Category::Transport,
        "a connection with another process broke and was made anew",
        &["rank", "replica"],
    ),
];

const TICKS_PER_SECOND: Count = 1_000_000_000;

fn resolve(handle: ToolHandle) -> Result<Arc<Registration>> {
    check_initialized()?;
    events::registration(handle)
        .ok_or_else(|| Error::new(MPI_T_ERR_INVALID_HANDLE, "not a registration of a callback for events"))
}

fn instance(handle: ToolHandle) -> Result<Arc<Event>> {
    check_initialized()?;
    let found = events::instance(handle);
    found.ok_or_else(|| Error::new(MPI_T_ERR_INVALID_HANDLE, "not an event, or its callback is over"))
}

fn check_safety(level: c_int) -> Result {
    if events::is_safety(level) {
        return Ok(());
    }
    Err(Error::new(MPI_T_ERR_INVALID, format!("{level} is no level of safety of a callback")))
}

/// Accepts hints and ignores them: no hint is known.
fn take_hints(info: InfoHandle) -> Result {
    info::resolve_hints(info).map(drop).map_err(|_| Error::new(MPI_T_ERR_INVALID, "not an info object"))
}

/// Returns the hints in use, none, in an object that the caller frees.
fn set_hints(place: Output<InfoHandle>) {
    if !place.is_null() {
        set(place, info::register(Info::default()));
    }
}

/// `MPI_T_event_get_num`.
pub fn t_event_get_num(num_events: Output<c_int>) -> Result {
    check_initialized()?;
    num_events.set(TYPES.len() as c_int)
}

/// `MPI_T_event_get_index`.
pub fn t_event_get_index(name: Input<c_char>, event_index: Output<c_int>) -> Result {
    index_of(TYPES.iter().map(|of| of.name), name, event_index)
}

/// `MPI_T_event_get_info`.
pub fn t_event_get_info(
    event_index: c_int,
    name: Output<c_char>,
    name_len: Output<c_int>,
    verbosity: Output<c_int>,
    array_of_datatypes: Output<DatatypeHandle>,
    array_of_displacements: Output<Aint>,
    num_elements: Output<c_int>,
    enumtype: Output<ToolHandle>,
    info: Output<InfoHandle>,
    desc: Output<c_char>,
    desc_len: Output<c_int>,
    bind: Output<c_int>,
) -> Result {
    let of = entry(&TYPES, event_index)?;
    put_text(of.name, name, name_len)?;
    put_text(of.description, desc, desc_len)?;
    set(verbosity, MPI_T_VERBOSITY_USER_BASIC);
    if !num_elements.is_null() {
        let room = usize::try_from(num_elements.get()?).unwrap_or(0);
        for place in 0..room.min(of.elements.items.len()) {
            if !array_of_datatypes.is_null() {
                array_of_datatypes.set_at(place, DatatypeHandle::INT64_T)?;
            }
            if !array_of_displacements.is_null() {
                array_of_displacements.set_at(place, (place * ELEMENT_BYTES) as Aint)?;
            }
        }
        num_elements.set(of.elements.items.len() as c_int)?;
    }
    set(enumtype, of.elements.handle());
    set_hints(info);
    set(bind, MPI_T_BIND_NO_OBJECT);
    Ok(())
}

/// `MPI_T_event_handle_alloc`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn t_event_handle_alloc(
    event_index: c_int,
    _obj_handle: *mut c_void,
    info: InfoHandle,
    event_registration: Output<ToolHandle>,
) -> Result {
    entry(&TYPES, event_index)?;
    take_hints(info)?;
    if event_registration.is_null() {
        return Err(Error::new(MPI_T_ERR_INVALID, "there is no place for the handle"));
    }
    event_registration.set(Registration::add(EventKind::ALL[event_index as usize]))
}

/// `MPI_T_event_handle_set_info`.
pub fn t_event_handle_set_info(event_registration: ToolHandle, info: InfoHandle) -> Result {
    resolve(event_registration)?;
    take_hints(info)
}

/// `MPI_T_event_handle_get_info`.
pub fn t_event_handle_get_info(event_registration: ToolHandle, info_used: Output<InfoHandle>) -> Result {
    resolve(event_registration)?;
    set_hints(info_used);
    Ok(())
}

/// `MPI_T_event_handle_free`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn t_event_handle_free(
    event_registration: ToolHandle,
    user_data: *mut c_void,
    free_cb_function: Callback,
) -> Result {
    resolve(event_registration)?;
    Registration::free(event_registration, free_cb_function, user_data.expose_provenance());
    Ok(())
}

/// `MPI_T_event_register_callback`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn t_event_register_callback(
    event_registration: ToolHandle,
    cb_safety: c_int,
    info: InfoHandle,
    user_data: *mut c_void,
    event_cb_function: Callback,
) -> Result {
    let registration = resolve(event_registration)?;
    check_safety(cb_safety)?;
    take_hints(info)?;
    registration.set_callback(cb_safety, event_cb_function, user_data.expose_provenance());
    Ok(())
}

/// `MPI_T_event_callback_set_info`.
pub fn t_event_callback_set_info(event_registration: ToolHandle, cb_safety: c_int, info: InfoHandle) -> Result {
    check_callback(event_registration, cb_safety)?;
    take_hints(info)
}

/// `MPI_T_event_callback_get_info`.
pub fn t_event_callback_get_info(
    event_registration: ToolHandle,
    cb_safety: c_int,
    info_used: Output<InfoHandle>,
) -> Result {
    check_callback(event_registration, cb_safety)?;
    set_hints(info_used);
    Ok(())
}

fn check_callback(event_registration: ToolHandle, cb_safety: c_int) -> Result {
    let registration = resolve(event_registration)?;
    check_safety(cb_safety)?;
    if registration.has_callback(cb_safety) {
        return Ok(());
    }
    Err(Error::new(MPI_T_ERR_INVALID, "no callback is registered for this level of safety"))
}

/// `MPI_T_event_set_dropped_handler`.
pub fn t_event_set_dropped_handler(event_registration: ToolHandle, dropped_cb_function: Callback) -> Result {
    resolve(event_registration)?.set_dropped(dropped_cb_function);
    Ok(())
}

/// `MPI_T_event_read`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn t_event_read(event_instance: ToolHandle, element_index: c_int, buffer: *mut c_void) -> Result {
    let event = instance(event_instance)?;
    let element = usize::try_from(element_index).ok().and_then(|index| event.elements.get(index));
    let element = element.ok_or_else(|| Error::new(MPI_T_ERR_INVALID_INDEX, "the event has no such element"))?;
    value_at::<i64>(buffer).set(*element)
}

/// `MPI_T_event_copy`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn t_event_copy(event_instance: ToolHandle, buffer: *mut c_void) -> Result {
    let event = instance(event_instance)?;
    let into = value_at::<i64>(buffer);
    event.elements.iter().enumerate().try_for_each(|(place, element)| into.set_at(place, *element))
}

/// `MPI_T_event_get_timestamp`.
pub fn t_event_get_timestamp(event_instance: ToolHandle, event_timestamp: Output<Count>) -> Result {
    event_timestamp.set(instance(event_instance)?.at_ns.cast_signed())
}

/// `MPI_T_event_get_source`.
pub fn t_event_get_source(event_instance: ToolHandle, source_index: Output<c_int>) -> Result {
    instance(event_instance)?;
    source_index.set(SOURCE)
}

/// `MPI_T_source_get_num`.
pub fn t_source_get_num(num_sources: Output<c_int>) -> Result {
    check_initialized()?;
    num_sources.set(1)
}

fn check_source(source_index: c_int) -> Result {
    check_initialized()?;
    if source_index == SOURCE {
        return Ok(());
    }
    Err(Error::new(MPI_T_ERR_INVALID_INDEX, "there is no source with this index"))
}

/// `MPI_T_source_get_info`.
pub fn t_source_get_info(
    source_index: c_int,
    name: Output<c_char>,
    name_len: Output<c_int>,
    desc: Output<c_char>,
    desc_len: Output<c_int>,
    ordering: Output<c_int>,
    ticks_per_second: Output<Count>,
    max_ticks: Output<Count>,
    info: Output<InfoHandle>,
) -> Result {
    check_source(source_index)?;
    put_text("redrt_process", name, name_len)?;
    put_text("this process, by its host's monotonic clock", desc, desc_len)?;
    set(ordering, MPI_T_SOURCE_ORDERED);
    set(ticks_per_second, TICKS_PER_SECOND);
    set(max_ticks, Count::MAX);
    set_hints(info);
    Ok(())
}

/// `MPI_T_source_get_timestamp`.
pub fn t_source_get_timestamp(source_index: c_int, timestamp: Output<Count>) -> Result {
    check_source(source_index)?;
    timestamp.set(monotonic_ns().cast_signed())
}
