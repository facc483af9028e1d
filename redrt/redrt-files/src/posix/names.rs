//! Changes of names: removing, renaming, linking, making directories.
//!
//! ```text
//!   look at the name: agreed ──▶ change it
//!                                  └── a successor that finds it changed: its predecessor has done it
//! ```
//! A file that is removed while the program has it open gets another name first: without a name a successor could not
//! open it. It is removed when the program closes it, as by network file systems.

use super::agree::{Found, outcome, perform};
use super::identity::Identity;
use super::open::{Seen, UNNAMED, inspect, own_name};
use super::table;
use super::{Done, Outcome, alone, is_silent, path_of, paths};
use file_undo::{Change, Subject};
use redrt_process::lock;
use redrt_runtime::call::{Call, Operation};
use redrt_runtime::undo;
use std::cell::RefCell;
use std::ffi::{CStr, OsStr, c_int};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const NOTHING: fn() -> Found = || Ok((0, Vec::new()));

/// The path to change; `None` if replicas do not agree on it.
fn subject(call: &Call) -> Option<PathBuf> {
    path_of(call.directory, call.path).filter(|path| paths::is_shared(path))
}

fn answered(found: Found) -> Outcome {
    found.map(|(result, _)| Done::Answered(result))
}

/// `unlink`, `rmdir`, `unlinkat`.
pub fn unlink(call: &Call) -> Outcome {
    let Some(path) = subject(call) else { return Ok(Done::Left) };
    if is_silent() {
        return Ok(Done::Answered(0));
    }
    let name = paths::as_c(&path);
    let (seen, author) = inspect(&name, false)?;
    let identity = seen.identity().ok_or(libc::ENOENT)?;
    if call.flags & libc::AT_REMOVEDIR == 0 {
        keep_open_file(&path, identity)?;
    } else {
        move_kept_files(&path);
    }
    answered(perform(NOTHING, || {
        if author.is_another() && Seen::at(&name, false)?.identity() != Some(identity) {
            return NOTHING();
        }
        let _passage = undo::before(Change::Name(&path));
        // SAFETY: - zero-terminated: name is a CString.
        outcome(unsafe { libc::unlinkat(libc::AT_FDCWD, name.as_ptr(), call.flags) }.into())
    }))
}

/// Gives a file that is about to lose this name another name, if the program has it open.
fn keep_open_file(path: &Path, identity: Identity) -> Result<(), c_int> {
    let is_it = |shared: &table::Shared| {
        let description = lock(shared);
        let is_file = description.listing.is_none() && !description.is_kept;
        description.identity == identity && description.path == path && is_file
    };
    let open: Vec<_> = table::all().into_iter().filter(is_it).collect();
    if open.is_empty() {
        return Ok(());
    }
    let kept = own_name(path);
    let (from, to) = (paths::as_c(path), paths::as_c(&kept));
    let linked = perform(NOTHING, || {
        let _passage = undo::before(Change::Name(&kept));
        // SAFETY: - zero-terminated: both names are CStrings.
        match outcome(unsafe { libc::link(from.as_ptr(), to.as_ptr()) }.into()) {
            Err(libc::EEXIST) => NOTHING(),
            linked => linked,
        }
    });
    // A file system without links: the file ends with this replica.
    if linked.is_ok() {
        for shared in open {
            let mut description = lock(&shared);
            description.rename(kept.clone());
            description.is_kept = true;
            description.refresh(&shared);
        }
    }
    Ok(())
}

/// Moves files of redrt's own out of a directory that is about to be removed, where the program does not see them. If
/// one of them cannot be moved, the directory cannot be removed.
fn move_kept_files(directory: &Path) {
    for shared in table::all() {
        let mut description = lock(&shared);
        if !description.is_kept || paths::parent(&description.path) != directory {
            continue;
        }
        let kept = own_name(directory);
        let to = paths::as_c(&kept);
        let moved = perform(NOTHING, || match rename_here(&description.path, &kept, 0) {
            // Moved by a predecessor.
            Err(libc::ENOENT) if Seen::at(&to, false)? != Seen::Absent => NOTHING(),
            moved => moved,
        });
        if moved.is_ok() {
            description.rename(kept);
            description.refresh(&shared);
        }
    }
}

/// `rename`, `renameat2`.
pub fn rename(call: &Call) -> Outcome {
    let (Some(path), Some(new_path)) = (subject(call), other(call)) else { return Ok(Done::Left) };
    if is_silent() {
        return Ok(Done::Answered(0));
    }
    let (name, new_name) = (paths::as_c(&path), paths::as_c(&new_path));
    let (seen, author) = inspect(&name, false)?;
    let identity = seen.identity().ok_or(libc::ENOENT)?;
    let (replaced, _) = inspect(&new_name, false)?;
    let exchanges = call.flags.cast_unsigned() & libc::RENAME_EXCHANGE != 0;
    if let Some(replaced) = replaced.identity().filter(|replaced| *replaced != identity && !exchanges) {
        keep_open_file(&new_path, replaced)?;
    }
    let renamed = perform(NOTHING, || {
        if author.is_another() && Seen::at(&name, false)?.identity() != Some(identity) {
            return NOTHING();
        }
        rename_here(&path, &new_path, call.flags)
    });
    renamed?;
    for shared in table::all() {
        let mut description = lock(&shared);
        if let Ok(rest) = description.path.strip_prefix(&path) {
            let now = if rest.as_os_str().is_empty() { new_path.clone() } else { new_path.join(rest) };
            description.rename(now);
        } else if let Ok(rest) = description.path.strip_prefix(&new_path)
            && exchanges
        {
            let now = if rest.as_os_str().is_empty() { path.clone() } else { path.join(rest) };
            description.rename(now);
        }
    }
    Ok(Done::Answered(0))
}

fn rename_here(path: &Path, new_path: &Path, flags: c_int) -> Found {
    let _passage = undo::before(alone::renaming(path, new_path, flags));
    let (name, new_name) = (paths::as_c(path), paths::as_c(new_path));
    // SAFETY: - zero-terminated: both names are CStrings.
    let result = unsafe {
        match flags.cast_unsigned() {
            0 => libc::rename(name.as_ptr(), new_name.as_ptr()),
            flags => libc::renameat2(libc::AT_FDCWD, name.as_ptr(), libc::AT_FDCWD, new_name.as_ptr(), flags),
        }
    };
    outcome(result.into())
}

fn other(call: &Call) -> Option<PathBuf> {
    path_of(call.other, call.other_path).filter(|path| paths::is_shared(path))
}

/// The open file to which `linkat` gives a name: it is passed as a descriptor, or as the descriptor's name in `/proc`.
fn open_source(call: &Call) -> Option<(RawFd, table::Shared)> {
    if call.path.is_null() {
        return None;
    }
    // SAFETY: - zero-terminated: not null, and the contract of the program's call.
    let path = unsafe { CStr::from_ptr(call.path) };
    let number = if path.is_empty() && call.flags & libc::AT_EMPTY_PATH != 0 {
        call.directory
    } else if call.flags & libc::AT_SYMLINK_FOLLOW != 0 {
        let path = path.to_str().ok()?;
        ["/proc/self/fd/", "/dev/fd/"].iter().find_map(|prefix| path.strip_prefix(prefix)?.parse().ok())?
    } else {
        return None;
    };
    Some((number, table::find(number)?))
}

fn link_open(call: &Call, fd: RawFd, shared: &table::Shared) -> Outcome {
    let Some(new_path) = other(call) else { return Ok(Done::Left) };
    if is_silent() {
        return Ok(Done::Answered(0));
    }
    let new_name = paths::as_c(&new_path);
    if inspect(&new_name, false)?.0 != Seen::Absent {
        return Err(libc::EEXIST);
    }
    let description = RefCell::new(lock(shared));
    let identity = description.borrow().identity;
    let linked = perform(NOTHING, || {
        let fd = description.borrow_mut().file(shared, fd)?;
        let name = paths::as_c(Path::new(&format!("/proc/self/fd/{fd}")));
        let _passage = undo::before(Change::Name(&new_path));
        let (here, follows) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
        // SAFETY: - zero-terminated: both names are CStrings.
        match outcome(unsafe { libc::linkat(here, name.as_ptr(), here, new_name.as_ptr(), follows) }.into()) {
            // Linked by a predecessor.
            Err(libc::EEXIST) if Seen::at(&new_name, false)?.identity() == Some(identity) => NOTHING(),
            linked => linked,
        }
    });
    linked?;
    let mut description = description.into_inner();
    if description.path.file_name().is_some_and(|name| name == UNNAMED) {
        description.rename(new_path);
        description.refresh(shared);
    }
    Ok(Done::Answered(0))
}

/// `link`, `linkat`.
pub fn link(call: &Call) -> Outcome {
    if let Some((fd, shared)) = open_source(call) {
        return link_open(call, fd, &shared);
    }
    let (Some(path), Some(new_path)) = (subject(call), other(call)) else { return Ok(Done::Left) };
    if is_silent() {
        return Ok(Done::Answered(0));
    }
    let (name, new_name) = (paths::as_c(&path), paths::as_c(&new_path));
    let (seen, author) = inspect(&name, call.flags & libc::AT_SYMLINK_FOLLOW != 0)?;
    let identity = seen.identity().ok_or(libc::ENOENT)?;
    if inspect(&new_name, false)?.0 != Seen::Absent {
        return Err(libc::EEXIST);
    }
    answered(perform(NOTHING, || {
        let _passage = undo::before(Change::Name(&new_path));
        // SAFETY: - zero-terminated: both names are CStrings.
        let linked = outcome(
            unsafe { libc::linkat(libc::AT_FDCWD, name.as_ptr(), libc::AT_FDCWD, new_name.as_ptr(), call.flags) }
                .into(),
        );
        let is_done = linked.as_ref().is_err_and(|_| author.is_another());
        if is_done && Seen::at(&new_name, false)?.identity() == Some(identity) { NOTHING() } else { linked }
    }))
}

/// `symlink`, `symlinkat`.
pub fn symbolic_link(call: &Call) -> Outcome {
    let Some(path) = subject(call).filter(|_| !call.other_path.is_null()) else { return Ok(Done::Left) };
    if is_silent() {
        return Ok(Done::Answered(0));
    }
    let name = paths::as_c(&path);
    // SAFETY: - zero-terminated: not null, and the contract of the program's call.
    let says = unsafe { CStr::from_ptr(call.other_path) };
    let (seen, author) = inspect(&name, false)?;
    if seen != Seen::Absent {
        return Err(libc::EEXIST);
    }
    answered(perform(NOTHING, || {
        let _passage = undo::before(Change::Name(&path));
        // SAFETY: - zero-terminated: a CStr and a CString.
        let made = outcome(unsafe { libc::symlink(says.as_ptr(), name.as_ptr()) }.into());
        let is_ours =
            || std::fs::read_link(&path).is_ok_and(|found| found == Path::new(OsStr::from_bytes(says.to_bytes())));
        if made == Err(libc::EEXIST) && author.is_another() && is_ours() { NOTHING() } else { made }
    }))
}

/// `mkdir`, `mkdirat`.
pub fn make_directory(call: &Call) -> Outcome {
    let Some(path) = subject(call) else { return Ok(Done::Left) };
    if is_silent() {
        return Ok(Done::Answered(0));
    }
    let name = paths::as_c(&path);
    let (seen, author) = inspect(&name, false)?;
    if seen != Seen::Absent {
        return Err(libc::EEXIST);
    }
    answered(perform(NOTHING, || {
        let _passage = undo::before(Change::Name(&path));
        // SAFETY: - zero-terminated: name is a CString.
        let made = outcome(unsafe { libc::mkdir(name.as_ptr(), call.mode) }.into());
        // Cannot be distinguished from a directory that another rank has made at the moment of the leader's death.
        let is_ours = made == Err(libc::EEXIST) && author.is_another() && path.is_dir();
        if is_ours { NOTHING() } else { made }
    }))
}

/// `truncate`, `chmod`, `chown`, `utimensat`.
pub fn change(call: &Call) -> Outcome {
    let Some(path) = subject(call) else { return Ok(Done::Left) };
    let name = paths::as_c(&path);
    answered(perform(NOTHING, || {
        let changed = alone::followed(call).unwrap_or_else(|| path.clone());
        let _passage = undo::before(match call.operation {
            Operation::Truncate => Change::Resize(Subject::Named(&changed), alone::size_of(call.length)),
            _ => Change::Describe(Subject::Named(&changed)),
        });
        let (path, flags) = (name.as_ptr(), call.flags);
        // SAFETY: - zero-terminated: name is a CString.
        //         - the times are valid for reads or null: the contract of the program's call.
        let result = unsafe {
            match call.operation {
                Operation::Truncate => libc::truncate(path, call.length),
                Operation::ChangeOwner => libc::fchownat(libc::AT_FDCWD, path, call.mode, call.length as u32, flags),
                Operation::SetTimes => libc::utimensat(libc::AT_FDCWD, path, call.buffer.cast(), flags),
                _ => libc::fchmodat(libc::AT_FDCWD, path, call.mode, flags),
            }
        };
        outcome(result.into())
    }))
}
