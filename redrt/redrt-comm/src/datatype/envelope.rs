//! Envelopes of datatypes: constructor and arguments (MPI-5.0 section 5.1.13).

use super::Datatype;
use std::ffi::c_int;
use std::sync::Arc;

/// A constructor's name and arguments, sorted as `MPI_Type_get_contents` returns them.
#[derive(Clone, Debug)]
pub struct Envelope {
    /// `MPI_COMBINER_...`.
    pub combiner: c_int,
    /// Arguments of type `int`; in types made by `int` constructors also their counts.
    pub integers: Vec<c_int>,
    /// Addresses and byte displacements.
    pub addresses: Vec<isize>,
    /// Counts and displacements of large-count constructors.
    pub counts: Vec<i64>,
    /// Datatypes passed to the constructor.
    pub datatypes: Vec<Arc<Datatype>>,
    wide: bool,
}

impl Envelope {
    /// A constructor, of the large-count kind if `wide`, without arguments yet.
    #[must_use]
    pub fn new(combiner: c_int, wide: bool) -> Self {
        let (integers, addresses) = (Vec::new(), Vec::new());
        Self { combiner, integers, addresses, counts: Vec::new(), datatypes: Vec::new(), wide }
    }

    /// Adds an argument of type `int`.
    #[must_use]
    pub fn integer(mut self, value: c_int) -> Self {
        self.integers.push(value);
        self
    }

    /// Adds counts, or displacements that are counted in elements.
    #[must_use]
    pub fn count(mut self, values: &[i64]) -> Self {
        if self.wide {
            self.counts.extend_from_slice(values);
        } else {
            // The values were ints.
            self.integers.extend(values.iter().map(|value| *value as c_int));
        }
        self
    }

    /// Adds byte displacements; large-count constructors have them among their counts.
    #[must_use]
    pub fn address(mut self, values: &[i64]) -> Self {
        if self.wide {
            self.counts.extend_from_slice(values);
        } else {
            self.addresses.extend(values.iter().map(|value| *value as isize));
        }
        self
    }

    /// Adds a datatype passed to the constructor.
    #[must_use]
    pub fn datatype(mut self, datatype: &Arc<Datatype>) -> Self {
        self.datatypes.push(Arc::clone(datatype));
        self
    }

    /// Returns true if only the large-count queries can return the arguments.
    #[must_use]
    pub fn is_wide(&self) -> bool {
        self.wide && !self.counts.is_empty()
    }
}
