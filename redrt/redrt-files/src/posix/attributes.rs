//! Extended attributes of files, by path or by descriptor.

use super::agree::{Found, observe, outcome, perform};
use super::{Done, Outcome, alone, path_of, paths, table};
use file_undo::Change;
use redrt_process::lock;
use redrt_runtime::call::{Call, Operation};
use redrt_runtime::undo::{self, Passage};
use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;

/// Maximum length of a value, and of a list of names, in the kernel (`XATTR_SIZE_MAX`, `XATTR_LIST_MAX`).
const BYTES_MAX: i64 = 64 << 10;

/// File of an operation on attributes.
enum Subject<'a> {
    Name(CString),
    /// Returns the leader's descriptor of an agreed file.
    Descriptor(&'a dyn Fn() -> Result<RawFd, i32>),
}

/// Runs `act` on the file of a call; `None` if replicas do not agree on that file.
fn with_subject(call: &Call, act: impl FnOnce(Subject) -> Outcome) -> Option<Outcome> {
    if call.path.is_null() {
        let shared = table::find(call.fd)?;
        let description = RefCell::new(lock(&shared));
        return Some(act(Subject::Descriptor(&|| description.borrow_mut().file(&shared, call.fd))));
    }
    let path = path_of(call.directory, call.path).filter(|path| paths::is_shared(path))?;
    Some(act(Subject::Name(paths::as_c(&path))))
}

/// `getxattr`, `listxattr` and their variants.
pub fn read(call: &Call) -> Outcome {
    let agreed = with_subject(call, |subject| {
        let (result, bytes) = observe(|| ask(call, &subject)).0?;
        // SAFETY: - buffer is valid for writes of call.length bytes, by the contract of the program's call; bytes are
        //           no more.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), call.buffer.cast::<u8>(), bytes.len()) };
        Ok(Done::Answered(result))
    });
    agreed.unwrap_or(Ok(Done::Left))
}

/// Asks the kernel. Returns the length, and the bytes unless the call only asks for the length.
fn ask(call: &Call, subject: &Subject) -> Found {
    let room = call.length.clamp(0, BYTES_MAX) as usize;
    let mut bytes = vec![0_u8; room];
    let (into, name) = (bytes.as_mut_ptr(), call.other_path);
    // SAFETY: - zero-terminated, or null, which the kernel refuses: the names, by the contract of the program's call.
    //         - into is valid for writes of room bytes.
    let found = unsafe {
        match (subject, call.operation, call.flags) {
            (Subject::Name(path), Operation::ListAttributes, 0) => libc::listxattr(path.as_ptr(), into.cast(), room),
            (Subject::Name(path), Operation::ListAttributes, _) => libc::llistxattr(path.as_ptr(), into.cast(), room),
            (Subject::Name(path), _, 0) => libc::getxattr(path.as_ptr(), name, into.cast(), room),
            (Subject::Name(path), ..) => libc::lgetxattr(path.as_ptr(), name, into.cast(), room),
            (Subject::Descriptor(lend), Operation::ListAttributes, _) => libc::flistxattr(lend()?, into.cast(), room),
            (Subject::Descriptor(lend), ..) => libc::fgetxattr(lend()?, name, into.cast(), room),
        }
    };
    let (count, _) = outcome(found as i64)?;
    bytes.truncate(count as usize);
    Ok((count, bytes))
}

/// `setxattr`, `removexattr` and their variants. A change that would fail the second time is preceded by an agreed
/// look.
pub fn change(call: &Call) -> Outcome {
    let agreed = with_subject(call, |subject| {
        let nothing = || Ok((0, Vec::new()));
        let how = call.mode.cast_signed();
        let removes = call.operation == Operation::RemoveAttribute;
        let mut is_found_removed = false;
        if removes || how == libc::XATTR_CREATE {
            let question = Call { operation: Operation::GetAttribute, length: 0, ..*call };
            let (found, author) = observe(|| ask(&question, &subject));
            match found {
                Ok(_) if !removes => return Err(libc::EEXIST),
                Err(libc::ENODATA) if !removes => {}
                found => drop(found?),
            }
            is_found_removed = author.is_another();
        }
        let how = how & !libc::XATTR_CREATE;
        let changed = perform(nothing, || {
            let _passage = passage(call, &subject)?;
            match set(call, how, &subject) {
                Err(libc::ENODATA) if is_found_removed => nothing(),
                changed => changed,
            }
        });
        changed.map(|(result, _)| Done::Answered(result))
    });
    agreed.unwrap_or(Ok(Done::Left))
}

/// Records the attribute's present value.
fn passage(call: &Call, subject: &Subject) -> Result<Passage, i32> {
    let name = name_of(call);
    Ok(match subject {
        Subject::Descriptor(lend) => undo::before(Change::Attribute(file_undo::Subject::Open(lend()?), name)),
        Subject::Name(path) => {
            let path = alone::followed(call).unwrap_or_else(|| OsStr::from_bytes(path.to_bytes()).into());
            undo::before(Change::Attribute(file_undo::Subject::Named(&path), name))
        }
    })
}

/// Name of the attribute of a call; empty for a null pointer.
pub fn name_of(call: &Call) -> &[u8] {
    match call.other_path.is_null() {
        true => &[],
        // SAFETY: - zero-terminated, and valid during the call: the contract of the program's call.
        false => unsafe { CStr::from_ptr(call.other_path) }.to_bytes(),
    }
}

fn set(call: &Call, how: i32, subject: &Subject) -> Found {
    let (name, value, size) = (call.other_path, call.buffer, call.length as usize);
    // SAFETY: - zero-terminated, or null, which the kernel refuses: the names, by the contract of the program's call.
    //         - value is valid for reads of size bytes: the same contract.
    let result = unsafe {
        match (subject, call.operation, call.flags) {
            (Subject::Name(path), Operation::RemoveAttribute, 0) => libc::removexattr(path.as_ptr(), name),
            (Subject::Name(path), Operation::RemoveAttribute, _) => libc::lremovexattr(path.as_ptr(), name),
            (Subject::Name(path), _, 0) => libc::setxattr(path.as_ptr(), name, value, size, how),
            (Subject::Name(path), ..) => libc::lsetxattr(path.as_ptr(), name, value, size, how),
            (Subject::Descriptor(lend), Operation::RemoveAttribute, _) => libc::fremovexattr(lend()?, name),
            (Subject::Descriptor(lend), ..) => libc::fsetxattr(lend()?, name, value, size, how),
        }
    };
    outcome(result.into())
}
