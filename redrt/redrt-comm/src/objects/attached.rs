//! Error handler and attributes, common to communicators, windows, files and sessions.

use super::attributes::AttributeSet;
use super::errhandler::Errhandler;
use std::sync::{Arc, PoisonError, RwLock};

/// Error handler and attributes of one object.
#[derive(Debug)]
pub struct Attached {
    errhandler: RwLock<Arc<Errhandler>>,
    /// Attributes that the program has cached on the object.
    pub attributes: AttributeSet,
}

impl Attached {
    /// `MPI_ERRORS_ARE_FATAL` and no attributes, the initial state of communicators, windows and sessions.
    #[must_use]
    pub fn new() -> Self {
        Self::with_errhandler(Arc::new(Errhandler::Fatal))
    }

    /// A given error handler and no attributes: a new communicator has its parent's handler (MPI-5.0 section 9.3).
    #[must_use]
    pub fn with_errhandler(errhandler: Arc<Errhandler>) -> Self {
        Self { errhandler: RwLock::new(errhandler), attributes: AttributeSet::new() }
    }

    /// The error handler in force.
    #[must_use]
    pub fn errhandler(&self) -> Arc<Errhandler> {
        Arc::clone(&self.errhandler.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the error handler.
    pub fn set_errhandler(&self, errhandler: Arc<Errhandler>) {
        *self.errhandler.write().unwrap_or_else(PoisonError::into_inner) = errhandler;
    }
}

impl Default for Attached {
    fn default() -> Self {
        Self::new()
    }
}
