//! Attributes (MPI-5.0 section 19.3.7): an integer in Fortran, a pointer in C. Each language may read values that the
//! other has set.
//!
//! C sees a value from Fortran as a pointer to that integer. So each value gets a place for good, one for all
//! attributes of that value: C may copy an attribute from object to object, and the end of the last copy is unknown.
//! Fortran sees a value from C as the address that it is. For predefined attributes C has the address of an integer,
//! and Fortran the integer.

use crate::{Aint, Binding, Predefined};
use std::collections::{HashMap, HashSet};
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Places of values, by value and by address.
#[derive(Default)]
struct Places {
    by_value: HashMap<Aint, &'static Aint>,
    addresses: HashSet<usize>,
}

static PLACES: Mutex<Option<Places>> = Mutex::new(None);

fn places() -> MutexGuard<'static, Option<Places>> {
    PLACES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pointer that C keeps for an attribute from Fortran.
pub fn attribute_to_c(value: Aint) -> *mut c_void {
    let mut guard = places();
    let places = guard.get_or_insert_default();
    let place: &'static Aint = places.by_value.entry(value).or_insert_with(|| Box::leak(Box::new(value)));
    places.addresses.insert(std::ptr::from_ref(place).addr());
    std::ptr::from_ref(place).cast_mut().cast()
}

/// The attribute in Fortran for the pointer that C keeps.
pub fn attribute_from_c(kept: *mut c_void) -> Aint {
    let is_place = places().as_ref().is_some_and(|places| places.addresses.contains(&kept.addr()));
    if is_place {
        // SAFETY: - `kept` is one of our places, which stay for good and never change.
        unsafe { *kept.cast::<Aint>() }
    } else {
        kept.expose_provenance() as Aint
    }
}

/// The attribute in Fortran under a key that may be predefined.
///
/// # Safety
/// `found` is the value that C has under this key.
pub unsafe fn attribute_out<B: Binding>(keyval: c_int, found: *mut c_void) -> Aint {
    match B::KEYS.iter().find(|key| key.fortran == keyval).map(|key| key.value) {
        // SAFETY: - under this key C has the address of an MPI_Aint.
        Some(Predefined::Size) => unsafe { *found.cast::<Aint>() },
        Some(Predefined::Address) => found.expose_provenance() as Aint,
        // SAFETY: - under this key C has the address of an int.
        Some(Predefined::Int) => Aint::try_from(unsafe { *found.cast::<c_int>() }).unwrap_or_default(),
        None => attribute_from_c(found),
    }
}

/// The key in C for a key in Fortran.
#[must_use]
pub fn keyval_to_c<B: Binding>(keyval: c_int) -> c_int {
    B::KEYS.iter().find(|key| key.fortran == keyval).map_or(keyval, |key| key.c)
}
