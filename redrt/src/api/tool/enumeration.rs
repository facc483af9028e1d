//! Enumerations (MPI-5.0 §15.3.5): names of the values of variables, and of the elements of events.

use super::event::TYPES;
use super::{check_initialized, put_text, set};
use redrt_abi::error::{Error, Result};
use redrt_abi::*;
use std::ffi::{c_char, c_int};

/// Names of the numbers from 0 on.
#[derive(PartialEq, Eq)]
pub(super) struct Enumeration {
    pub(super) name: &'static str,
    pub(super) items: &'static [&'static str],
}

pub(super) static SWITCH: Enumeration = Enumeration { name: "redrt_switch", items: &["off", "on"] };
pub(super) static TRANSPORT: Enumeration = Enumeration { name: "redrt_transport", items: &["auto", "shm", "tcp"] };
pub(super) static DETERMINISM: Enumeration = Enumeration { name: "redrt_determinism", items: &["full", "sends"] };
pub(super) static FILES: Enumeration = Enumeration { name: "redrt_files", items: &["once", "all", "leader"] };
pub(super) static THREADS: Enumeration = Enumeration { name: "redrt_threads", items: &["order", "none"] };
pub(super) static ON_SDC: Enumeration =
    Enumeration { name: "redrt_on_sdc", items: &["heal", "correct", "report", "abort", "return"] };

/// Enumerations of variables. In the list of all, those of events follow.
static OF_VARIABLES: [&Enumeration; 6] = [&SWITCH, &TRANSPORT, &DETERMINISM, &FILES, &THREADS, &ON_SDC];

/// Handles are places in the list of all plus this number, so that none is null.
const FIRST_HANDLE: usize = 0x3000;

fn all() -> impl Iterator<Item = &'static Enumeration> {
    OF_VARIABLES.into_iter().chain(TYPES.iter().map(|of| &of.elements))
}

impl Enumeration {
    /// The handle of this enumeration; `MPI_T_ENUM_NULL` if it is not in the list of all.
    pub(super) fn handle(&self) -> ToolHandle {
        all().position(|known| known == self).map_or(MPI_T_ENUM_NULL, |place| ToolHandle(FIRST_HANDLE + place))
    }
}

fn resolve(handle: ToolHandle) -> Result<&'static Enumeration> {
    check_initialized()?;
    let found = handle.0.checked_sub(FIRST_HANDLE).and_then(|place| all().nth(place));
    found.ok_or_else(|| Error::new(MPI_T_ERR_INVALID_HANDLE, "not an enumeration"))
}

/// `MPI_T_enum_get_info`.
pub fn t_enum_get_info(
    enumtype: ToolHandle,
    num: Output<c_int>,
    name: Output<c_char>,
    name_len: Output<c_int>,
) -> Result {
    let found = resolve(enumtype)?;
    set(num, found.items.len() as c_int);
    put_text(found.name, name, name_len)
}

/// `MPI_T_enum_get_item`.
pub fn t_enum_get_item(
    enumtype: ToolHandle,
    index: c_int,
    value: Output<c_int>,
    name: Output<c_char>,
    name_len: Output<c_int>,
) -> Result {
    let found = resolve(enumtype)?;
    let item = usize::try_from(index).ok().and_then(|index| found.items.get(index));
    let item = item.ok_or_else(|| Error::new(MPI_T_ERR_INVALID_INDEX, format!("{} has no such item", found.name)))?;
    set(value, index);
    put_text(item, name, name_len)
}
