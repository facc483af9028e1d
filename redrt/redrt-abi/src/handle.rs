//! Handles, and the tables behind them.
//!
//! A handle is a pointer-sized value: a small constant of the standard ABI for predefined objects, or a number that a
//! [`HandleTable`] gave out. The numbers fit a positive C `int`, so a handle is its own Fortran handle.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(transparent)]
        pub struct $name(pub usize);

        impl $name {
            /// The handle's value as an integer, which is also the Fortran handle.
            #[must_use]
            pub fn to_int(self) -> c_int {
                self.0 as c_int
            }

            /// The handle with this integer value.
            #[must_use]
            pub fn from_int(value: c_int) -> Self {
                Self(value as isize as usize)
            }
        }

        impl From<usize> for $name {
            fn from(value: usize) -> Self {
                Self(value)
            }
        }
    )*};
}

handles! {
    /// `MPI_Comm`.
    CommHandle;
    /// `MPI_Datatype`.
    DatatypeHandle;
    /// `MPI_Errhandler`.
    ErrhandlerHandle;
    /// `MPI_File`.
    FileHandle;
    /// `MPI_Group`.
    GroupHandle;
    /// `MPI_Info`.
    InfoHandle;
    /// `MPI_Message`.
    MessageHandle;
    /// `MPI_Op`.
    OpHandle;
    /// `MPI_Request`.
    RequestHandle;
    /// `MPI_Session`.
    SessionHandle;
    /// `MPI_Win`.
    WinHandle;
}

/// An object in use by a call. Counting references takes as long as a short message: predefined objects live forever
/// and need no count.
pub enum Held<T: 'static> {
    /// A predefined object, which is never freed.
    Forever(&'static Arc<T>),
    /// Any other object, with a reference for the call.
    Counted(Arc<T>),
}

impl<T> std::ops::Deref for Held<T> {
    type Target = Arc<T>;

    #[inline]
    fn deref(&self) -> &Arc<T> {
        match self {
            Self::Forever(object) => object,
            Self::Counted(object) => object,
        }
    }
}

impl<T> Clone for Held<T> {
    #[inline]
    fn clone(&self) -> Self {
        match self {
            Self::Forever(object) => Self::Forever(object),
            Self::Counted(object) => Self::Counted(Arc::clone(object)),
        }
    }
}

impl<T> Held<T> {
    /// The object with a reference that can be kept.
    pub fn shared(self) -> Arc<T> {
        match self {
            Self::Forever(object) => Arc::clone(object),
            Self::Counted(object) => object,
        }
    }
}

/// The first number of an object: lower ones are constants of the ABI.
const FIRST: usize = 0x1000;
const INDEX_BITS: u32 = 22;
const INDEX_COUNT_MAX: usize = (1 << INDEX_BITS) - FIRST;
const GENERATION_COUNT: u16 = 1 << (31 - INDEX_BITS);
const FIRST_CHUNK_LENGTH: usize = 1024;
/// Chunks double in length, so this many hold every index.
const CHUNK_COUNT: usize = 13;

/// Objects by handle value, for any number of threads.
///
/// The trap: a program may use a handle after it was freed. The place may by then hold another object, so the value
/// carries the generation of its place. A stale value finds nothing, and the caller reports `MPI_ERR_x`. Places are
/// reused oldest first, so a stale value is recognised for as long as possible. A lookup locks one place only, while it
/// counts a reference.
pub struct HandleTable<T> {
    chunks: [OnceLock<Box<[HandleSlot<T>]>>; CHUNK_COUNT],
    free: Mutex<Free>,
}

type HandleSlot<T> = RwLock<HandleEntry<T>>;

struct HandleEntry<T> {
    generation: u16,
    object: Option<Arc<T>>,
}

struct Free {
    /// Places for reuse, the oldest first.
    places: VecDeque<usize>,
    /// All places that were ever used are below this index.
    used_count: usize,
}

impl<T> HandleTable<T> {
    /// A table without objects.
    #[must_use]
    pub const fn new() -> Self {
        let chunks = [const { OnceLock::new() }; CHUNK_COUNT];
        Self { chunks, free: Mutex::new(Free { places: VecDeque::new(), used_count: 0 }) }
    }

    /// Registers the object and returns its handle value.
    ///
    /// # Panics
    /// When four million objects of one kind are alive.
    pub fn insert(&self, object: Arc<T>) -> usize {
        let mut own_value = 0;
        self.insert_with(|value| {
            own_value = value;
            object
        });
        own_value
    }

    /// Registers the object that `make` makes from its handle value.
    ///
    /// # Panics
    /// As [`HandleTable::insert`].
    pub fn insert_with(&self, make: impl FnOnce(usize) -> Arc<T>) -> Arc<T> {
        let index = self.take_place();
        let mut entry = self.place(index).write().unwrap_or_else(PoisonError::into_inner);
        let object = make(usize::from(entry.generation) << INDEX_BITS | (index + FIRST));
        entry.object = Some(Arc::clone(&object));
        object
    }

    fn take_place(&self) -> usize {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        // Fresh places are taken first, a chunk at a time, so that a value is not reused at once.
        let at_boundary = free.used_count.is_multiple_of(FIRST_CHUNK_LENGTH) || free.used_count >= INDEX_COUNT_MAX;
        if at_boundary && let Some(place) = free.places.pop_front() {
            return place;
        }
        assert!(free.used_count < INDEX_COUNT_MAX, "{INDEX_COUNT_MAX} handles of one kind are in use");
        free.used_count += 1;
        free.used_count - 1
    }

    /// The object, unless the value was never given out or the object was removed.
    #[must_use]
    pub fn get(&self, value: usize) -> Option<Arc<T>> {
        let (index, generation) = split(value)?;
        let entry = self.existing_place(index)?.read().unwrap_or_else(PoisonError::into_inner);
        if entry.generation == generation { entry.object.clone() } else { None }
    }

    /// Replaces an object by one made from it. References to the old object keep it. Without an object it has no
    /// effect.
    pub fn replace(&self, value: usize, with: impl FnOnce(&T) -> T) {
        let Some((index, generation)) = split(value) else { return };
        let Some(place) = self.existing_place(index) else { return };
        let mut entry = place.write().unwrap_or_else(PoisonError::into_inner);
        if entry.generation == generation
            && let Some(object) = &mut entry.object
        {
            *object = Arc::new(with(object));
        }
    }

    /// Removes and returns the object, which lives as long as it is referenced.
    pub fn remove(&self, value: usize) -> Option<Arc<T>> {
        let (index, generation) = split(value)?;
        let object = {
            let mut entry = self.existing_place(index)?.write().unwrap_or_else(PoisonError::into_inner);
            if entry.generation != generation {
                return None;
            }
            let object = entry.object.take()?;
            entry.generation = (generation + 1) % GENERATION_COUNT;
            object
        };
        self.free.lock().unwrap_or_else(PoisonError::into_inner).places.push_back(index);
        Some(object)
    }

    /// The handle values and objects that are in the table now.
    #[must_use]
    pub fn snapshot(&self) -> Vec<(usize, Arc<T>)> {
        let used_count = self.free.lock().unwrap_or_else(PoisonError::into_inner).used_count;
        let object = |index: usize| {
            let entry = self.existing_place(index)?.read().unwrap_or_else(PoisonError::into_inner);
            let value = usize::from(entry.generation) << INDEX_BITS | (index + FIRST);
            entry.object.clone().map(|object| (value, object))
        };
        (0..used_count).filter_map(object).collect()
    }

    fn place(&self, index: usize) -> &HandleSlot<T> {
        let (chunk, offset) = chunk_of(index);
        let empty = || RwLock::new(HandleEntry { generation: 0, object: None });
        let chunk = self.chunks[chunk].get_or_init(|| (0..FIRST_CHUNK_LENGTH << chunk).map(|_| empty()).collect());
        &chunk[offset]
    }

    fn existing_place(&self, index: usize) -> Option<&HandleSlot<T>> {
        let (chunk, offset) = chunk_of(index);
        self.chunks.get(chunk)?.get()?.get(offset)
    }
}

impl<T> Default for HandleTable<T> {
    fn default() -> Self {
        Self::new()
    }
}

fn split(value: usize) -> Option<(usize, u16)> {
    let index = (value & ((1 << INDEX_BITS) - 1)).checked_sub(FIRST)?;
    let generation = u16::try_from(value >> INDEX_BITS).ok()?;
    Some((index, generation))
}

/// Chunk k holds `FIRST_CHUNK_LENGTH << k` places.
fn chunk_of(index: usize) -> (usize, usize) {
    let chunk = (index / FIRST_CHUNK_LENGTH + 1).ilog2() as usize;
    (chunk, index - FIRST_CHUNK_LENGTH * ((1 << chunk) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_every_index_once() {
        let mut expected = (0, 0);
        for index in 0..100_000 {
            assert_eq!(chunk_of(index), expected);
            expected.1 += 1;
            if expected.1 == FIRST_CHUNK_LENGTH << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        assert!(chunk_of(INDEX_COUNT_MAX - 1).0 < CHUNK_COUNT);
    }

    #[test]
    fn stale_and_foreign_values_find_nothing() {
        let table = HandleTable::new();
        let mut stale = Vec::new();
        for round in 0..5000 {
            let value = table.insert(Arc::new(round));
            assert!((0x1000..=i32::MAX as usize).contains(&value));
            assert_eq!(table.get(value).as_deref(), Some(&round));
            assert_eq!(table.remove(value).as_deref(), Some(&round));
            assert!(table.remove(value).is_none());
            stale.push(value);
        }
        let live = table.insert(Arc::new(-1));
        let held = table.get(live);
        for value in stale.iter().copied().chain([0, live, live + 1]) {
            table.replace(value, |object| object - 1);
        }
        assert_eq!((held.as_deref(), table.get(live).as_deref()), (Some(&-1), Some(&-2)));
        assert!(stale.iter().all(|value| table.get(*value).is_none()));
        for value in [0, 1, 257, 0xfff, live ^ 1 << INDEX_BITS, live + 1, usize::MAX, 1 << 40] {
            assert!(table.get(value).is_none(), "{value:#x}");
        }
        assert_eq!(table.snapshot().len(), 1);
    }

    #[test]
    fn threads_insert_look_up_and_remove_at_once() {
        let table = HandleTable::new();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let table = &table;
                scope.spawn(move || {
                    for round in 0..20_000 {
                        let object = (thread, round);
                        let value = table.insert(Arc::new(object));
                        assert_eq!(table.get(value).as_deref(), Some(&object));
                        assert_eq!(table.remove(value).as_deref(), Some(&object));
                    }
                });
            }
        });
        assert!(table.snapshot().is_empty());
    }
}
