//! MPI's datatype objects (MPI-5.0 chapter 5): a type map, with the data that MPI keeps for it.
//!
//! `redrt-datatype` has the type maps: the parts of an element, and packing. A [`Datatype`] adds the handle, the name,
//! the attributes, the mark of a committed type, and an [`Envelope`] with constructor and arguments. A type map is
//! complete when it is constructed, so `MPI_Type_commit` only marks the object.

mod envelope;
mod predefined;
#[cfg(test)]
mod tests;

pub use envelope::Envelope;
pub use predefined::{f90_complex, f90_integer, f90_real, match_size, value_index};

use crate::objects::attributes::AttributeSet;
use redrt_abi::error::{Error, Result};
use redrt_abi::handle::{DatatypeHandle, HandleTable, Held};
use redrt_abi::{MPI_COMBINER_DUP, MPI_ERR_TYPE};
use redrt_datatype::TypeMap;
use redrt_datatype::basic::Basic;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A datatype. It dereferences to its type map for questions that are independent of MPI's objects.
#[derive(Debug)]
pub struct Datatype {
    map: TypeMap,
    envelope: Envelope,
    /// The handle of a predefined type, and of an unnamed one that Fortran's kinds make.
    predefined: Option<DatatypeHandle>,
    /// The first handle that the program was given.
    first_handle: OnceLock<DatatypeHandle>,
    committed: AtomicBool,
    name: Mutex<String>,
    /// Attributes that the program has cached on the datatype.
    pub attributes: AttributeSet,
}

impl Deref for Datatype {
    type Target = TypeMap;

    #[inline]
    fn deref(&self) -> &TypeMap {
        &self.map
    }
}

impl Datatype {
    /// A derived type that is not committed.
    #[must_use]
    pub fn new(map: TypeMap, envelope: Envelope) -> Self {
        Self {
            map,
            envelope,
            predefined: None,
            first_handle: OnceLock::new(),
            committed: AtomicBool::new(false),
            name: Mutex::default(),
            attributes: AttributeSet::new(),
        }
    }

    /// Duplicates the type (`MPI_Type_dup`); the new one is committed if the old one is. The caller copies the
    /// attributes.
    #[must_use]
    pub fn duplicate(old: &Arc<Self>) -> Self {
        let envelope = Envelope::new(MPI_COMBINER_DUP, false).datatype(old);
        let new = Self::new(old.map.clone(), envelope);
        if old.is_committed() {
            new.commit();
        }
        new
    }

    /// Constructor and arguments of the type.
    #[must_use]
    pub fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    /// The handle, if this is a predefined type.
    #[must_use]
    #[inline]
    pub fn predefined(&self) -> Option<DatatypeHandle> {
        self.predefined
    }

    /// Returns true if the type may be used in communication.
    #[must_use]
    pub fn is_committed(&self) -> bool {
        self.committed.load(Ordering::Relaxed)
    }

    /// Marks the type as usable in communication.
    pub fn commit(&self) {
        self.committed.store(true, Ordering::Relaxed);
    }

    /// The name; empty if none was set.
    #[must_use]
    pub fn name(&self) -> String {
        self.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the name that `MPI_Type_get_name` returns.
    pub fn set_name(&self, name: String) {
        *self.name.lock().unwrap_or_else(PoisonError::into_inner) = name;
    }
}

process_local! {
    static DERIVED: HandleTable<Datatype> = HandleTable::new();
}

/// Registers a datatype and returns its handle; a predefined type has its own.
pub fn register(datatype: Arc<Datatype>) -> DatatypeHandle {
    if let Some(handle) = datatype.predefined {
        return handle;
    }
    let handle = DatatypeHandle(DERIVED.insert(Arc::clone(&datatype)));
    datatype.first_handle.get_or_init(|| handle);
    handle
}

/// Calls `f` with a handle of the datatype, for a function of the program: the handle that the program knows, or a
/// temporary one if the program has freed that handle while an operation still uses the type.
pub fn with_handle(datatype: &Arc<Datatype>, f: impl FnOnce(DatatypeHandle)) {
    if let Some(handle) = datatype.predefined {
        return f(handle);
    }
    let known = datatype.first_handle.get().copied();
    let is_alive = |handle: &DatatypeHandle| DERIVED.get(handle.0).is_some_and(|found| Arc::ptr_eq(&found, datatype));
    if let Some(handle) = known.filter(is_alive) {
        return f(handle);
    }
    let handle = DERIVED.insert(Arc::clone(datatype));
    f(DatatypeHandle(handle));
    DERIVED.remove(handle);
}

/// The datatype behind a handle.
///
/// # Errors
/// `MPI_ERR_TYPE` when none exists.
#[inline]
pub fn resolve(handle: DatatypeHandle) -> Result<Held<Datatype>> {
    match predefined::find(handle) {
        Some(datatype) => Ok(Held::Forever(datatype)),
        None => DERIVED.get(handle.0).map(Held::Counted).ok_or_else(invalid),
    }
}

/// The predefined datatype with this handle, which is always committed.
#[inline]
pub fn predefined(handle: DatatypeHandle) -> Option<&'static Datatype> {
    predefined::find(handle).map(|datatype| &**datatype)
}

/// Handle of the predefined type of a basic element of `datatype`: the type it was made from, if the envelopes have it.
#[must_use]
pub fn handle_of_basic(datatype: &Datatype, basic: Basic) -> DatatypeHandle {
    fn leaf(datatype: &Datatype, basic: Basic) -> Option<DatatypeHandle> {
        match datatype.predefined {
            Some(handle) if datatype.basic() == Some(basic) => Some(handle),
            _ => datatype.envelope.datatypes.iter().find_map(|part| leaf(part, basic)),
        }
    }
    leaf(datatype, basic).or_else(|| predefined::of_basic(basic)).expect("basic types are those of predefined types")
}

/// The datatype behind a handle, for communication.
///
/// # Errors
/// `MPI_ERR_TYPE` when there is none or it is not committed.
#[inline(always)]
pub fn resolve_committed(handle: DatatypeHandle) -> Result<Held<Datatype>> {
    let datatype = resolve(handle)?;
    if datatype.is_committed() {
        return Ok(datatype);
    }
    Err(Error::new(MPI_ERR_TYPE, "the datatype is not committed"))
}

/// A datatype for an inactive operation. It stays valid when the program frees its handle (MPI-5.0 §5.1.9).
pub struct KeptDatatype {
    handle: DatatypeHandle,
    is_derived: bool,
}

/// Keeps a datatype, under a handle of its own.
///
/// # Errors
/// `MPI_ERR_TYPE` when there is none or it is not committed.
pub fn keep(handle: DatatypeHandle) -> Result<KeptDatatype> {
    let datatype = resolve_committed(handle)?;
    let is_derived = datatype.predefined.is_none();
    let handle = if is_derived { DatatypeHandle(DERIVED.insert(datatype.shared())) } else { handle };
    Ok(KeptDatatype { handle, is_derived })
}

impl KeptDatatype {
    /// Handle under which the datatype is kept.
    pub fn handle(&self) -> DatatypeHandle {
        self.handle
    }
}

impl Drop for KeptDatatype {
    fn drop(&mut self) {
        if self.is_derived {
            DERIVED.remove(self.handle.0);
        }
    }
}

/// Frees a derived datatype; communication and types that use it keep it.
///
/// # Errors
/// `MPI_ERR_TYPE` when there is none or it is predefined.
pub fn free(handle: DatatypeHandle) -> Result {
    if resolve(handle)?.predefined.is_some() {
        return Err(Error::new(MPI_ERR_TYPE, "a predefined datatype cannot be freed"));
    }
    DERIVED.remove(handle.0).map(drop).ok_or_else(invalid)
}

#[cold]
fn invalid() -> Error {
    Error::new(MPI_ERR_TYPE, "not a valid datatype")
}
