//! Attributes cached on communicators, datatypes and windows (MPI-5.0 section 7.7).

use redrt_abi::error::{Error, Result};
use redrt_abi::handle::HandleTable;
use redrt_abi::{Callback, MPI_COMM_DUP_FN, MPI_COMM_NULL_COPY_FN, MPI_ERR_KEYVAL};
use redrt_runtime::callbacks;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Kind of object on which an attribute may be cached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectKind {
    /// For keys of `MPI_Comm_create_keyval`.
    Comm,
    /// For keys of `MPI_Type_create_keyval`.
    Datatype,
    /// For keys of `MPI_Win_create_keyval`.
    Win,
}

/// A key: the copy and delete functions of its attributes.
#[derive(Debug)]
pub struct Keyval {
    kind: ObjectKind,
    copy: Callback,
    delete: Callback,
    extra_state: usize,
    use_of: Mutex<Use>,
}

/// Uses of a key. It is removed once it was freed and no attribute is cached under it; its number may then be reused.
#[derive(Debug, Default)]
struct Use {
    attribute_count: usize,
    is_freed: bool,
}

impl Use {
    fn is_over(&self) -> bool {
        self.is_freed && self.attribute_count == 0
    }
}

impl Keyval {
    fn use_of(&self) -> MutexGuard<'_, Use> {
        self.use_of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

process_local! {
    static KEYVALS: HandleTable<Keyval> = HandleTable::new();
}

/// Makes a key and returns its value.
pub fn create_keyval(kind: ObjectKind, copy: Callback, delete: Callback, extra_state: usize) -> c_int {
    KEYVALS.insert(Arc::new(Keyval { kind, copy, delete, extra_state, use_of: Mutex::default() })) as c_int
}

/// Returns the extra state of a key's functions, for any kind of object; `None` without such a key. A `state` other
/// than 0 replaces it, which has to be done before an attribute is set under the key.
pub fn exchange_state(keyval: c_int, state: usize) -> Option<usize> {
    let value = usize::try_from(keyval).ok()?;
    let former = KEYVALS.get(value)?.extra_state;
    if state != 0 {
        KEYVALS.replace(value, |key| Keyval { extra_state: state, use_of: Mutex::default(), ..*key });
    }
    Some(former)
}

/// Frees a key. Attributes cached under it stay, and are read, copied and deleted as before (MPI-5.0 section 7.7.2).
///
/// # Errors
/// `MPI_ERR_KEYVAL` when there is no such key.
pub fn free_keyval(keyval: c_int, kind: ObjectKind) -> Result {
    let key = find(keyval, kind)?;
    let mut use_of = key.use_of();
    use_of.is_freed = true;
    if use_of.is_over() {
        KEYVALS.remove(keyval as usize);
    }
    Ok(())
}

fn find(keyval: c_int, kind: ObjectKind) -> Result<Arc<Keyval>> {
    let found = usize::try_from(keyval).ok().and_then(|value| KEYVALS.get(value));
    let wrong = || Error::new(MPI_ERR_KEYVAL, format!("{keyval} is not a key for this kind of object"));
    found.filter(|found| found.kind == kind).ok_or_else(wrong)
}

/// The attributes of one object, in the order they were first set.
#[derive(Debug, Default)]
pub struct AttributeSet {
    attributes: Mutex<Vec<Attribute>>,
}

#[derive(Debug)]
struct Attribute {
    keyval: c_int,
    key: Arc<Keyval>,
    value: usize,
}

impl Clone for Attribute {
    fn clone(&self) -> Self {
        Self::new(self.keyval, self.key.clone(), self.value)
    }
}

impl Drop for Attribute {
    fn drop(&mut self) {
        let mut use_of = self.key.use_of();
        use_of.attribute_count -= 1;
        if use_of.is_over() {
            KEYVALS.remove(self.keyval as usize);
        }
    }
}

impl AttributeSet {
    /// A set without attributes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Attribute>> {
        self.attributes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value under a key, if one is set.
    ///
    /// # Errors
    /// `MPI_ERR_KEYVAL` when there is no such key.
    pub fn get(&self, keyval: c_int, kind: ObjectKind) -> Result<Option<usize>> {
        find(keyval, kind)?;
        Ok(self.lock().iter().find(|attribute| attribute.keyval == keyval).map(|attribute| attribute.value))
    }

    /// Sets the value under a key of the object with handle value `object`; a former value is deleted first.
    ///
    /// # Errors
    /// `MPI_ERR_KEYVAL` when there is no such key, or it was freed; the code of a delete function that fails. The
    /// former value remains.
    pub fn set(&self, keyval: c_int, kind: ObjectKind, object: usize, value: usize) -> Result {
        let key = find(keyval, kind)?;
        if key.use_of().is_freed {
            return Err(Error::new(MPI_ERR_KEYVAL, format!("key {keyval} was freed")));
        }
        let former = self.lock().iter().find(|attribute| attribute.keyval == keyval).cloned();
        if let Some(former) = former {
            former.delete(object)?;
        }
        let mut attributes = self.lock();
        match attributes.iter_mut().find(|attribute| attribute.keyval == keyval) {
            Some(attribute) => attribute.value = value,
            None => attributes.push(Attribute::new(keyval, key, value)),
        }
        Ok(())
    }

    /// Deletes the value under a key.
    ///
    /// # Errors
    /// `MPI_ERR_KEYVAL` when there is no such key or no value; the code of a delete function that fails. The value
    /// remains.
    pub fn delete(&self, keyval: c_int, kind: ObjectKind, object: usize) -> Result {
        find(keyval, kind)?;
        let attribute = self.lock().iter().find(|attribute| attribute.keyval == keyval).cloned();
        let missing = || Error::new(MPI_ERR_KEYVAL, format!("no attribute is set under key {keyval}"));
        attribute.ok_or_else(missing)?.delete(object)?;
        self.lock().retain(|attribute| attribute.keyval != keyval);
        Ok(())
    }

    /// The attributes of a duplicate of the object with handle value `object`: those whose copy functions ask for a
    /// copy.
    ///
    /// # Errors
    /// The code that a copy function returns; attributes copied before it are deleted again.
    pub fn duplicate(&self, object: usize) -> Result<Self> {
        let originals = self.lock().clone();
        let mut copies = Vec::with_capacity(originals.len());
        for original in originals {
            match original.copy(object) {
                Ok(Some(value)) => copies.push(Attribute::new(original.keyval, original.key.clone(), value)),
                Ok(None) => {}
                Err(error) => {
                    for copy in copies.iter().rev() {
                        let _ = copy.delete(object);
                    }
                    return Err(error);
                }
            }
        }
        Ok(Self { attributes: Mutex::new(copies) })
    }

    /// Deletes all attributes, the last first (MPI-5.0 section 11.2.4 requires that order for `MPI_COMM_SELF`). Called
    /// when the object with handle value `object` is freed.
    ///
    /// # Errors
    /// The code that a delete function returns; that attribute and those set before it remain.
    pub fn delete_all(&self, object: usize) -> Result {
        loop {
            let Some(last) = self.lock().last().cloned() else { return Ok(()) };
            last.delete(object)?;
            self.lock().retain(|attribute| attribute.keyval != last.keyval);
        }
    }
}

impl Attribute {
    fn new(keyval: c_int, key: Arc<Keyval>, value: usize) -> Self {
        key.use_of().attribute_count += 1;
        Self { keyval, key, value }
    }

    fn copy(&self, object: usize) -> Result<Option<usize>> {
        match self.key.copy {
            // The null-copy and dup functions of communicators, datatypes and windows have the same values.
            MPI_COMM_NULL_COPY_FN => Ok(None),
            MPI_COMM_DUP_FN => Ok(Some(self.value)),
            function => {
                let (keyval, extra_state) = (self.keyval, self.key.extra_state);
                match callbacks::call_copy_attribute(function, object, keyval, extra_state, self.value) {
                    (0, value) => Ok(value),
                    (code, _) => Err(Error::new(code, "an attribute's copy function failed")),
                }
            }
        }
    }

    fn delete(&self, object: usize) -> Result {
        if self.key.delete.0 == 0 {
            return Ok(());
        }
        let extra_state = self.key.extra_state;
        match callbacks::call_delete_attribute(self.key.delete, object, self.keyval, self.value, extra_state) {
            0 => Ok(()),
            code => Err(Error::new(code, "an attribute's delete function failed")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::c_void;

    unsafe extern "C" fn copy_adds_one(
        _object: usize,
        _keyval: c_int,
        _state: *mut c_void,
        value: *mut c_void,
        copied: *mut c_void,
        flag: *mut c_int,
    ) -> c_int {
        // SAFETY: - valid for writes: the library passes a pointer to a local.
        unsafe { copied.cast::<usize>().write(value.addr() + 1) };
        // SAFETY: - valid for writes: the library passes a pointer to a local.
        unsafe { flag.write(1) };
        0
    }

    /// Appends the value to the vector that the extra state points to; fails on the value 13.
    unsafe extern "C" fn delete_logs(_: usize, _: c_int, value: *mut c_void, log: *mut c_void) -> c_int {
        // SAFETY: - valid and not shared: the tests pass a vector that outlives the keys.
        unsafe { &mut *log.cast::<Vec<usize>>() }.push(value.addr());
        if value.addr() == 13 { MPI_ERR_KEYVAL } else { 0 }
    }

    fn logging_key(copy: Callback, log: &mut Vec<usize>) -> c_int {
        let delete = Callback(delete_logs as *const () as usize);
        create_keyval(ObjectKind::Comm, copy, delete, std::ptr::from_mut(log).expose_provenance())
    }

    #[test]
    fn copy_functions_decide_what_a_duplicate_has() {
        let mut log = Vec::new();
        let own = logging_key(Callback(copy_adds_one as *const () as usize), &mut log);
        let dup = logging_key(MPI_COMM_DUP_FN, &mut log);
        let none = logging_key(MPI_COMM_NULL_COPY_FN, &mut log);
        let set = AttributeSet::new();
        for (keyval, value) in [(own, 10), (dup, 20), (none, 30)] {
            set.set(keyval, ObjectKind::Comm, 257, value).unwrap();
        }
        let copy = set.duplicate(257).unwrap();
        let value = |keyval| copy.get(keyval, ObjectKind::Comm).unwrap();
        assert_eq!([value(own), value(dup), value(none)], [Some(11), Some(20), None]);
        set.delete_all(257).unwrap();
        copy.delete_all(257).unwrap();
        assert_eq!(log, [30, 20, 10, 20, 11]);
    }

    #[test]
    fn a_key_that_was_freed_goes_with_its_last_attribute() {
        let mut log = Vec::new();
        let keyval = logging_key(MPI_COMM_DUP_FN, &mut log);
        let set = AttributeSet::new();
        set.set(keyval, ObjectKind::Comm, 257, 10).unwrap();
        let copy = set.duplicate(257).unwrap();
        // Freed once for each holder of its number.
        free_keyval(keyval, ObjectKind::Comm).unwrap();
        free_keyval(keyval, ObjectKind::Comm).unwrap();
        assert_eq!(set.get(keyval, ObjectKind::Comm).unwrap(), Some(10));
        assert!(set.set(keyval, ObjectKind::Comm, 257, 11).is_err());
        set.delete(keyval, ObjectKind::Comm, 257).unwrap();
        assert_eq!(set.get(keyval, ObjectKind::Comm).unwrap(), None);
        copy.delete_all(257).unwrap();
        assert!(copy.get(keyval, ObjectKind::Comm).is_err());
        assert_eq!(log, [10, 10]);
    }

    #[test]
    fn a_key_has_the_state_that_was_exchanged_before_its_attributes() {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let keyval = logging_key(MPI_COMM_NULL_COPY_FN, &mut first);
        let former = std::ptr::from_mut(&mut first).expose_provenance();
        let state = std::ptr::from_mut(&mut second).expose_provenance();
        assert_eq!(exchange_state(keyval, 0), Some(former));
        assert_eq!(exchange_state(keyval, state), Some(former));
        assert_eq!((exchange_state(keyval, 0), exchange_state(-1, 0)), (Some(state), None));
        let set = AttributeSet::new();
        set.set(keyval, ObjectKind::Comm, 257, 10).unwrap();
        set.delete_all(257).unwrap();
        assert_eq!((first, second), (vec![], vec![10]));
    }

    #[test]
    fn a_failing_delete_function_keeps_the_attribute() {
        let mut log = Vec::new();
        let keyval = logging_key(MPI_COMM_DUP_FN, &mut log);
        let set = AttributeSet::new();
        set.set(keyval, ObjectKind::Comm, 257, 13).unwrap();
        assert_eq!(set.set(keyval, ObjectKind::Comm, 257, 14).unwrap_err().code(), MPI_ERR_KEYVAL);
        assert!(set.delete(keyval, ObjectKind::Comm, 257).is_err() && set.delete_all(257).is_err());
        assert_eq!(set.get(keyval, ObjectKind::Comm).unwrap(), Some(13));
        assert!(set.get(keyval, ObjectKind::Win).is_err(), "a key is for one kind of object");
    }
}
