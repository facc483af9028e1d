//! Windows: creation, end, and their properties.

use super::member;
use redrt_abi::error::Result;
use redrt_abi::fail;
use redrt_abi::handle::{CommHandle, GroupHandle, InfoHandle, WinHandle};
use redrt_abi::{
    Aint, CountOut, Input, MPI_ERR_ARG, MPI_ERR_DISP, MPI_ERR_RMA_ATTACH, MPI_ERR_RMA_FLAVOR, MPI_ERR_SIZE,
    MPI_MAX_OBJECT_NAME, MPI_PROC_NULL, Output,
};
use redrt_comm::comm;
use redrt_comm::objects::{group, info};
use redrt_process::lock;
use redrt_window::create::{Memories, create, remove};
use redrt_window::{self as window, Used, Window};
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

fn make(memories: Memories, info: InfoHandle, comm: CommHandle) -> Result<Arc<Window>> {
    let parent = comm::resolve(comm)?;
    create(&parent, memories, info::resolve_hints(info)?)
}

fn check_size(size: Aint) -> Result<u64> {
    match u64::try_from(size) {
        Ok(size) => Ok(size),
        Err(_) => fail!(MPI_ERR_SIZE, "a window of {size} bytes"),
    }
}

fn check_unit(unit: i64) -> Result<c_int> {
    match c_int::try_from(unit) {
        Ok(unit) if unit > 0 => Ok(unit),
        _ => fail!(MPI_ERR_DISP, "the displacement unit is {unit}"),
    }
}

/// `MPI_Win_create`.
///
/// # Safety
/// The pointers are those of the C call, and the memory stays valid until the window is freed.
pub unsafe fn win_create(
    base: *mut c_void,
    size: Aint,
    disp_unit: i64,
    info: InfoHandle,
    comm: CommHandle,
    win: Output<WinHandle>,
) -> Result {
    let memories = Memories::Create(base.expose_provenance(), check_size(size)?, check_unit(disp_unit)?);
    win.set(make(memories, info, comm)?.handle())
}

/// Returns the handle of a window, and the address of the memory that the library allocated for it.
fn hand_over(window: &Window, baseptr: *mut c_void, win: Output<WinHandle>) -> Result {
    Output::<usize>::from_address(baseptr).set(window.facts.base)?;
    win.set(window.handle())
}

/// `MPI_Win_allocate`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn win_allocate(
    size: Aint,
    disp_unit: i64,
    info: InfoHandle,
    comm: CommHandle,
    baseptr: *mut c_void,
    win: Output<WinHandle>,
) -> Result {
    let window = make(Memories::Allocate(check_size(size)?, check_unit(disp_unit)?), info, comm)?;
    hand_over(&window, baseptr, win)
}

/// `MPI_Win_allocate_shared`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn win_allocate_shared(
    size: Aint,
    disp_unit: i64,
    info: InfoHandle,
    comm: CommHandle,
    baseptr: *mut c_void,
    win: Output<WinHandle>,
) -> Result {
    let apart = info::resolve_hints(info)?.and_then(|info| info.get("alloc_shared_noncontig"));
    let apart = apart.is_some_and(|value| value == "true");
    let window = make(Memories::Share(check_size(size)?, check_unit(disp_unit)?, apart), info, comm)?;
    hand_over(&window, baseptr, win)
}

/// `MPI_Win_create_dynamic`.
pub fn win_create_dynamic(info: InfoHandle, comm: CommHandle, win: Output<WinHandle>) -> Result {
    win.set(make(Memories::Dynamic, info, comm)?.handle())
}

/// `MPI_Win_attach`.
///
/// # Safety
/// The pointers are those of the C call, and the memory stays valid until it is detached.
pub unsafe fn win_attach(win: WinHandle, base: *mut c_void, size: Aint) -> Result {
    let window = dynamic(win)?;
    let size = check_size(size)?;
    if base.is_null() && size > 0 {
        fail!(MPI_ERR_ARG, "the memory to attach is null");
    }
    window.attach(base.expose_provenance() as u64, size)
}

/// `MPI_Win_detach`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn win_detach(win: WinHandle, base: *const c_void) -> Result {
    dynamic(win)?.detach(base.expose_provenance() as u64)
}

fn dynamic(win: WinHandle) -> Result<Used> {
    let window = window::resolve(win)?;
    if !window.is_dynamic() {
        fail!(MPI_ERR_RMA_ATTACH, "{} was not made by MPI_Win_create_dynamic", window.label());
    }
    Ok(window)
}

/// `MPI_Win_free`.
pub fn win_free(win: Output<WinHandle>) -> Result {
    let window = window::resolve(win.get()?)?;
    window.check_free()?;
    window.attached.attributes.delete_all(window.handle().0)?;
    window.close()?;
    remove(&window);
    win.set(WinHandle::NULL)
}

/// `MPI_Win_shared_query`.
///
/// # Safety
/// The pointers are those of the C call.
pub unsafe fn win_shared_query(
    win: WinHandle,
    rank: c_int,
    size: Output<Aint>,
    disp_unit: CountOut,
    baseptr: *mut c_void,
) -> Result {
    let window = window::resolve(win)?;
    let chosen = match rank {
        MPI_PROC_NULL => window.members.iter().position(|member| member.size > 0).unwrap_or(0) as u32,
        rank => member(&window, rank)?,
    };
    let exposed = window.members[chosen as usize];
    let start = match exposed.start {
        Some(start) => start,
        None if window.is_dynamic() => {
            fail!(MPI_ERR_RMA_FLAVOR, "memory of {} is attached, not shared", window.label())
        }
        None if chosen == window.rank() => window.facts.base,
        // Not reachable by loads and stores: shown as a rank without memory (MPI-5.0 §12.2.3).
        None => {
            size.set(0)?;
            disp_unit.set(exposed.unit as i64)?;
            return Output::<usize>::from_address(baseptr).set(0);
        }
    };
    size.set(exposed.size as Aint)?;
    disp_unit.set(exposed.unit as i64)?;
    Output::<usize>::from_address(baseptr).set(start)
}

/// `MPI_Win_get_group`.
pub fn win_get_group(win: WinHandle, group: Output<GroupHandle>) -> Result {
    let window = window::resolve(win)?;
    let members = window.comm.members.iter().map(|member| member.0).collect();
    group.set(group::register(Arc::new(group::Group::list(members))))
}

/// `MPI_Win_set_info`.
pub fn win_set_info(win: WinHandle, info: InfoHandle) -> Result {
    let window = window::resolve(win)?;
    let hints = info::resolve(info)?;
    lock(&window.info).update(&hints);
    Ok(())
}

/// `MPI_Win_get_info`.
pub fn win_get_info(win: WinHandle, info_used: Output<InfoHandle>) -> Result {
    let hints = info::Info::default();
    // MPI-5.0 section 12.2.1: these are the guarantees unless the program asks for less.
    hints.set("accumulate_ordering", "rar,raw,war,waw")?;
    hints.set("accumulate_ops", "same_op_no_op")?;
    hints.update(&lock(&window::resolve(win)?.info));
    info_used.set(info::register(hints))
}

/// `MPI_Win_set_name`.
pub fn win_set_name(win: WinHandle, win_name: Input<c_char>) -> Result {
    let window = window::resolve(win)?;
    let mut name = win_name.text()?;
    while name.len() >= MPI_MAX_OBJECT_NAME as usize {
        name.pop();
    }
    *lock(&window.name) = name;
    Ok(())
}

/// `MPI_Win_get_name`. `MPI_WIN_NULL` has a name too.
pub fn win_get_name(win: WinHandle, win_name: Output<c_char>, resultlen: Output<c_int>) -> Result {
    let name = match win {
        WinHandle::NULL => "MPI_WIN_NULL".to_owned(),
        win => lock(&window::resolve(win)?.name).clone(),
    };
    let length = win_name.set_text(&name, MPI_MAX_OBJECT_NAME as usize)?;
    resultlen.set(length as c_int)
}
