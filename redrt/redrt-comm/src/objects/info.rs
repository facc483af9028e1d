//! Info objects: ordered keys and values (MPI-5.0 chapter 10).

use redrt_abi::error::{Error, Result};
use redrt_abi::handle::{HandleTable, InfoHandle};
use redrt_abi::{
    MPI_ERR_INFO, MPI_ERR_INFO_KEY, MPI_ERR_INFO_NOKEY, MPI_ERR_INFO_VALUE, MPI_MAX_INFO_KEY, MPI_MAX_INFO_VAL,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Keys and values in the order they were first set.
#[derive(Debug, Default)]
pub struct Info {
    pairs: Mutex<Vec<(String, String)>>,
}

process_local! {
    static INFOS: HandleTable<Info> = HandleTable::new();
    static ENVIRONMENT: RwLock<Option<Arc<Info>>> = RwLock::new(None);
}

/// Registers an info object and returns its handle.
pub fn register(info: Info) -> InfoHandle {
    InfoHandle(INFOS.insert(Arc::new(info)))
}

/// Sets the content of `MPI_INFO_ENV`, which is empty before.
pub fn set_environment(info: Info) {
    *ENVIRONMENT.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(info));
}

/// The object behind a handle.
///
/// # Errors
/// `MPI_ERR_INFO` when none exists, also for `MPI_INFO_NULL`.
pub fn resolve(handle: InfoHandle) -> Result<Arc<Info>> {
    if handle == InfoHandle::ENV {
        let environment = ENVIRONMENT.read().unwrap_or_else(PoisonError::into_inner);
        return Ok(environment.clone().unwrap_or_default());
    }
    INFOS.get(handle.0).ok_or_else(|| Error::new(MPI_ERR_INFO, "not a valid info object"))
}

/// The object behind a handle, or `None` for `MPI_INFO_NULL`: for functions that take hints.
///
/// # Errors
/// `MPI_ERR_INFO` when the handle is neither.
pub fn resolve_hints(handle: InfoHandle) -> Result<Option<Arc<Info>>> {
    if handle == InfoHandle::NULL { Ok(None) } else { resolve(handle).map(Some) }
}

/// Frees an info object.
///
/// # Errors
/// `MPI_ERR_INFO` when there is none or it is `MPI_INFO_ENV`.
pub fn free(handle: InfoHandle) -> Result {
    INFOS.remove(handle.0).map(drop).ok_or_else(|| Error::new(MPI_ERR_INFO, "not an info object that can be freed"))
}

impl Info {
    fn lock(&self) -> MutexGuard<'_, Vec<(String, String)>> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets a key.
    ///
    /// # Errors
    /// `MPI_ERR_INFO_KEY` or `MPI_ERR_INFO_VALUE` when key or value is too long, or the key is empty.
    pub fn set(&self, key: &str, value: &str) -> Result {
        check_key(key)?;
        if value.len() >= MPI_MAX_INFO_VAL as usize {
            redrt_abi::fail!(MPI_ERR_INFO_VALUE, "the value of '{key}' has {} bytes", value.len());
        }
        let mut pairs = self.lock();
        match pairs.iter_mut().find(|pair| pair.0 == key) {
            Some(pair) => value.clone_into(&mut pair.1),
            None => pairs.push((key.to_owned(), value.to_owned())),
        }
        Ok(())
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<String> {
        self.lock().iter().find(|pair| pair.0 == key).map(|pair| pair.1.clone())
    }

    /// Removes a key.
    ///
    /// # Errors
    /// `MPI_ERR_INFO_NOKEY` when it is not set.
    pub fn delete(&self, key: &str) -> Result {
        check_key(key)?;
        let mut pairs = self.lock();
        let Some(index) = pairs.iter().position(|pair| pair.0 == key) else {
            redrt_abi::fail!(MPI_ERR_INFO_NOKEY, "'{key}' is not set");
        };
        pairs.remove(index);
        Ok(())
    }

    /// All keys and values.
    #[must_use]
    pub fn pairs(&self) -> Vec<(String, String)> {
        self.lock().clone()
    }

    /// Takes over the pairs of `others`; other keys stay.
    pub fn update(&self, others: &Self) {
        for (key, value) in others.pairs() {
            let mut pairs = self.lock();
            match pairs.iter_mut().find(|pair| pair.0 == key) {
                Some(pair) => pair.1 = value,
                None => pairs.push((key, value)),
            }
        }
    }

    /// A copy that shares nothing with the original (`MPI_Info_dup`).
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self { pairs: Mutex::new(self.pairs()) }
    }
}

/// Fails unless the text may be a key.
///
/// # Errors
/// `MPI_ERR_INFO_KEY` when it is empty or too long.
pub fn check_key(key: &str) -> Result {
    if key.is_empty() || key.len() >= MPI_MAX_INFO_KEY as usize {
        redrt_abi::fail!(MPI_ERR_INFO_KEY, "a key has 1 to {} bytes, not {}", MPI_MAX_INFO_KEY - 1, key.len());
    }
    Ok(())
}
