//! Error classes, codes and their texts (MPI-5.0 sections 9.4 and 9.5), of the standard and added by the program.

use redrt_abi::error::{Error, Result};
use redrt_abi::*;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Classes and codes that the program has added.
struct Added {
    /// The largest code in use so far, the attribute `MPI_LASTUSEDCODE`.
    last_used: c_int,
    entries: BTreeMap<c_int, AddedCode>,
}

struct AddedCode {
    /// The class of the code; for a class, the class itself.
    class: c_int,
    text: String,
}

process_local! {
    static ADDED: Mutex<Added> = Mutex::new(Added { last_used: MPI_ERR_LASTCODE, entries: BTreeMap::new() });
}

fn added() -> MutexGuard<'static, Added> {
    ADDED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The largest code in use, never decreasing.
#[must_use]
pub fn last_used() -> c_int {
    added().last_used
}

/// The name of a class of the standard.
#[must_use]
pub fn class_name(class: c_int) -> Option<&'static str> {
    ERROR_NAMES.iter().find(|(_, value)| *value == class).map(|(name, _)| *name)
}

/// The class of a code, if there is such a code.
#[must_use]
pub fn class_of(code: c_int) -> Option<c_int> {
    if class_name(code).is_some() {
        return Some(code);
    }
    added().entries.get(&code).map(|entry| entry.class)
}

/// An error as text for the user: the name of its class, and the message.
#[must_use]
pub fn described(error: &Error) -> String {
    let class = class_of(error.code()).unwrap_or(error.code());
    match class_name(class) {
        Some(name) => format!("{name}: {error}"),
        None => format!("error {}: {error}", error.code()),
    }
}

/// The text of a code, if there is such a code.
#[must_use]
pub fn text_of(code: c_int) -> Option<String> {
    if let Some(name) = class_name(code) {
        return Some(format!("{name}: {}", meaning(code)));
    }
    // Section 9.5: a code without a text has the empty string.
    added().entries.get(&code).map(|entry| entry.text.clone())
}

fn add(class: impl FnOnce(c_int) -> c_int) -> c_int {
    let mut added = added();
    added.last_used += 1;
    let code = added.last_used;
    added.entries.insert(code, AddedCode { class: class(code), text: String::new() });
    code
}

/// Adds an error class and returns it (`MPI_Add_error_class`).
pub fn add_class() -> c_int {
    add(|code| code)
}

/// A new code of a class.
///
/// # Errors
/// `MPI_ERR_ARG` when there is no such class.
pub fn add_code(class: c_int) -> Result<c_int> {
    check_class(class)?;
    Ok(add(|_| class))
}

/// Sets the text of a code or class that the program added.
///
/// # Errors
/// `MPI_ERR_ARG` when the program has not added the code.
pub fn set_text(code: c_int, text: &str) -> Result {
    let mut added = added();
    added.entries.get_mut(&code).ok_or_else(|| not_added(code))?.text = text.to_owned();
    Ok(())
}

/// Removes a class that the program added and that has no codes.
///
/// # Errors
/// `MPI_ERR_ARG` when the program has not added the class, or it has codes or a text.
pub fn remove_class(class: c_int) -> Result {
    let mut added = added();
    if added.entries.get(&class).is_none_or(|entry| entry.class != class) {
        return Err(not_added(class));
    }
    if added.entries.iter().any(|(code, entry)| *code != class && entry.class == class) {
        redrt_abi::fail!(MPI_ERR_ARG, "error class {class} still has codes");
    }
    check_without_text(&added, class)?;
    added.entries.remove(&class);
    Ok(())
}

/// Removes a code that the program added.
///
/// # Errors
/// `MPI_ERR_ARG` when the program has not added the code, or it has a text.
pub fn remove_code(code: c_int) -> Result {
    let mut added = added();
    if added.entries.get(&code).is_none_or(|entry| entry.class == code) {
        return Err(not_added(code));
    }
    check_without_text(&added, code)?;
    added.entries.remove(&code);
    Ok(())
}

/// Removes the text of a code or class.
///
/// # Errors
/// `MPI_ERR_ARG` when the program has not added the code, or it has no text.
pub fn remove_text(code: c_int) -> Result {
    let mut added = added();
    let entry = added.entries.get_mut(&code).filter(|entry| !entry.text.is_empty());
    entry.ok_or_else(|| not_added(code))?.text.clear();
    Ok(())
}

fn check_without_text(added: &Added, code: c_int) -> Result {
    match added.entries.get(&code) {
        Some(entry) if !entry.text.is_empty() => Err(Error::new(MPI_ERR_ARG, format!("{code} still has a text"))),
        _ => Ok(()),
    }
}

fn check_class(class: c_int) -> Result {
    match class_of(class) {
        Some(own) if own == class => Ok(()),
        _ => Err(Error::new(MPI_ERR_ARG, format!("{class} is not an error class"))),
    }
}

fn not_added(code: c_int) -> Error {
    Error::new(MPI_ERR_ARG, format!("{code} was not added by this program"))
}

fn meaning(class: c_int) -> &'static str {
    MEANINGS
        .iter()
        .find(|(value, _)| *value == class)
        .map_or("error of the tool information interface", |(_, text)| text)
}

const MEANINGS: &[(c_int, &str)] = &[
    (MPI_SUCCESS, "no error"),
    (MPI_ERR_BUFFER, "invalid buffer"),
    (MPI_ERR_COUNT, "invalid count"),
    (MPI_ERR_TYPE, "invalid datatype"),
    (MPI_ERR_TAG, "invalid tag"),
    (MPI_ERR_COMM, "invalid communicator"),
    (MPI_ERR_RANK, "invalid rank"),
    (MPI_ERR_REQUEST, "invalid request"),
    (MPI_ERR_ROOT, "invalid root"),
    (MPI_ERR_GROUP, "invalid group"),
    (MPI_ERR_OP, "invalid reduction operation"),
    (MPI_ERR_TOPOLOGY, "invalid topology"),
    (MPI_ERR_DIMS, "invalid dimensions"),
    (MPI_ERR_ARG, "invalid argument"),
    (MPI_ERR_UNKNOWN, "unknown error"),
    (MPI_ERR_TRUNCATE, "message longer than the receive buffer"),
    (MPI_ERR_OTHER, "other error"),
    (MPI_ERR_INTERN, "internal error of the library"),
    (MPI_ERR_PENDING, "operation still pending"),
    (MPI_ERR_IN_STATUS, "the error code is in the status"),
    (MPI_ERR_ACCESS, "permission denied"),
    (MPI_ERR_AMODE, "invalid access mode"),
    (MPI_ERR_ASSERT, "invalid assertion"),
    (MPI_ERR_BAD_FILE, "invalid file name"),
    (MPI_ERR_BASE, "invalid base address"),
    (MPI_ERR_CONVERSION, "data conversion failed"),
    (MPI_ERR_DISP, "invalid displacement"),
    (MPI_ERR_DUP_DATAREP, "data representation already defined"),
    (MPI_ERR_FILE_EXISTS, "file exists"),
    (MPI_ERR_FILE_IN_USE, "file in use"),
    (MPI_ERR_FILE, "invalid file handle"),
    (MPI_ERR_INFO_KEY, "info key too long"),
    (MPI_ERR_INFO_NOKEY, "no such info key"),
    (MPI_ERR_INFO_VALUE, "info value too long"),
    (MPI_ERR_INFO, "invalid info object"),
    (MPI_ERR_IO, "input or output failed"),
    (MPI_ERR_KEYVAL, "invalid attribute key"),
    (MPI_ERR_LOCKTYPE, "invalid lock type"),
    (MPI_ERR_NAME, "service name not published"),
    (MPI_ERR_NO_MEM, "out of memory"),
    (MPI_ERR_NOT_SAME, "argument differs between processes"),
    (MPI_ERR_NO_SPACE, "no space left"),
    (MPI_ERR_NO_SUCH_FILE, "no such file"),
    (MPI_ERR_PORT, "invalid port name"),
    (MPI_ERR_QUOTA, "quota exceeded"),
    (MPI_ERR_READ_ONLY, "read-only file or file system"),
    (MPI_ERR_RMA_ATTACH, "memory cannot be attached"),
    (MPI_ERR_RMA_CONFLICT, "conflicting accesses to a window"),
    (MPI_ERR_RMA_RANGE, "target memory is not part of the window"),
    (MPI_ERR_RMA_SHARED, "memory cannot be shared"),
    (MPI_ERR_RMA_SYNC, "wrong synchronization of one-sided calls"),
    (MPI_ERR_SERVICE, "service name already published"),
    (MPI_ERR_SIZE, "invalid size"),
    (MPI_ERR_SPAWN, "processes could not be started"),
    (MPI_ERR_UNSUPPORTED_DATAREP, "data representation not supported"),
    (MPI_ERR_UNSUPPORTED_OPERATION, "operation not supported"),
    (MPI_ERR_WIN, "invalid window"),
    (MPI_ERR_RMA_FLAVOR, "wrong flavor of window"),
    (MPI_ERR_PROC_ABORTED, "a peer process has ended"),
    (MPI_ERR_VALUE_TOO_LARGE, "value too large for its type"),
    (MPI_ERR_SESSION, "invalid session"),
    (MPI_ERR_ERRHANDLER, "invalid error handler"),
    (MPI_ERR_ABI, "not possible with this ABI"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_of_the_standard_has_a_meaning() {
        for (name, class) in ERROR_NAMES.iter().filter(|(name, _)| !name.starts_with("MPI_T_")) {
            assert!(MEANINGS.iter().any(|(value, _)| value == class), "{name}");
            assert_eq!(class_of(*class), Some(*class));
            assert!(text_of(*class).unwrap().len() < MPI_MAX_ERROR_STRING as usize);
        }
        assert_eq!(class_of(-1), None);
        assert_eq!(text_of(MPI_ERR_LASTCODE - 1), None);
    }

    #[test]
    fn added_classes_and_codes_live_until_removed() {
        let class = add_class();
        assert!(class > MPI_ERR_LASTCODE);
        let code = add_code(class).unwrap();
        assert!(last_used() >= code);
        assert_eq!(class_of(code), Some(class));
        assert_eq!(text_of(code).as_deref(), Some(""));
        set_text(code, "too hot").unwrap();
        assert_eq!(text_of(code).as_deref(), Some("too hot"));
        assert!(remove_class(class).is_err() && remove_class(code).is_err() && remove_code(class).is_err());
        assert!(remove_code(code).is_err(), "it has a text");
        assert!(add_code(code).is_err() && set_text(MPI_ERR_RANK, "no").is_err());
        remove_text(code).unwrap();
        remove_code(code).unwrap();
        remove_class(class).unwrap();
        assert_eq!(class_of(code), None);
        assert!(remove_class(MPI_ERR_RANK).is_err());
    }
}
