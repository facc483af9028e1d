//! Sessions (MPI-5.0 §11.3). A program may have several, beside the world model of `MPI_Init`.

use super::attached::Attached;
use super::attachment::Attachment;
use super::info::Info;
use redrt_abi::MPI_ERR_SESSION;
use redrt_abi::error::{Error, Result};
use redrt_abi::handle::{HandleTable, SessionHandle};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A session of the program (MPI-5.0 §11.3).
pub struct Session {
    /// Error handler of the session.
    pub attached: Arc<Attached>,
    /// Hints of the program.
    pub info: Info,
    /// Buffer attached to the session for buffered mode.
    pub buffer: Mutex<Option<Attachment>>,
}

process_local! {
    static SESSIONS: HandleTable<Session> = HandleTable::new();
    static COUNT: AtomicUsize = AtomicUsize::new(0);
}

/// Registers a session and returns its handle.
pub fn register(session: Session) -> SessionHandle {
    COUNT.fetch_add(1, Ordering::AcqRel);
    SessionHandle(SESSIONS.insert(Arc::new(session)))
}

/// Number of sessions that have not ended.
pub fn count() -> usize {
    COUNT.load(Ordering::Acquire)
}

/// The session behind a handle.
///
/// # Errors
/// `MPI_ERR_SESSION` when none exists.
pub fn resolve(handle: SessionHandle) -> Result<Arc<Session>> {
    SESSIONS.get(handle.0).ok_or_else(invalid)
}

/// Ends a session.
///
/// # Errors
/// `MPI_ERR_SESSION` when none exists.
pub fn remove(handle: SessionHandle) -> Result {
    SESSIONS.remove(handle.0).ok_or_else(invalid)?;
    COUNT.fetch_sub(1, Ordering::AcqRel);
    Ok(())
}

fn invalid() -> Error {
    Error::new(MPI_ERR_SESSION, "not a session, or it has been finalized")
}
