//! Error handlers (MPI-5.0 section 9.3).

use super::error_codes;
use crate::objects::host;
use redrt_abi::error::{Error, Result, Scope};
use redrt_abi::handle::{CommHandle, ErrhandlerHandle, FileHandle, HandleTable};
use redrt_abi::{MPI_ERR_ERRHANDLER, MPI_ERR_OTHER};
use redrt_runtime::callbacks;
use redrt_runtime::callbacks::UserFunction;
use redrt_wire::dynamic::INITIAL_ERRHANDLER_VARIABLE;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Reaction to an error.
#[derive(Debug)]
pub enum Errhandler {
    /// `MPI_ERRORS_ARE_FATAL`: a message, and the job ends.
    Fatal,
    /// `MPI_ERRORS_ABORT`: a message, and the processes of the communicator end.
    Abort,
    /// `MPI_ERRORS_RETURN`: the function returns the code.
    Return,
    /// `MPI::ERRORS_THROW_EXCEPTIONS` of MPI-2's bindings for C++, in programs of other families: the function returns
    /// the code, and the family's library for C++ throws an exception. Its function may be called before
    /// ([`on_exception`]).
    Exceptions,
    /// A function of the program is called, then the function returns the code.
    User(UserErrhandler),
}

/// The kind of object that a user's error handler is for: the type of its first argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrhandlerKind {
    /// Made by `MPI_Comm_create_errhandler`.
    Comm,
    /// Made by `MPI_Win_create_errhandler`.
    Win,
    /// Made by `MPI_File_create_errhandler`.
    File,
    /// Made by `MPI_Session_create_errhandler`.
    Session,
}

/// An error handler of the program.
#[derive(Debug)]
pub struct UserErrhandler {
    kind: ErrhandlerKind,
    function: UserFunction,
    /// The handle, and the number of times that the program was given it and has not freed it.
    held: Mutex<(usize, u32)>,
}

impl UserErrhandler {
    /// Calls the program's function. Returns the code that it leaves, which is the MPI function's result (MPI-5.0
    /// section 9.3.1).
    pub fn call(&self, scope: Scope, code: c_int) -> c_int {
        callbacks::call_errhandler(self.function, subject(scope), code)
    }
}

/// The handle that a user's error handler is called with.
fn subject(scope: Scope) -> usize {
    match scope {
        Scope::Default => CommHandle::SELF.0,
        Scope::Comm(comm) => comm.0,
        Scope::Win(win) => win.0,
        Scope::File(file) => file.0,
        Scope::Session(session) => session.0,
    }
}

impl Errhandler {
    /// The predefined error handler with this name (MPI-5.0 sections 11.5 and 11.8.4); `None` if none exists.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "mpi_errors_are_fatal" => Some(Self::Fatal),
            "mpi_errors_abort" => Some(Self::Abort),
            "mpi_errors_return" => Some(Self::Return),
            _ => None,
        }
    }

    /// The initial error handler of this process's communicators: from `mpiexec -initial-errhandler`, or from a hint of
    /// the job that has spawned this one.
    #[must_use]
    pub fn initial() -> Self {
        std::env::var(INITIAL_ERRHANDLER_VARIABLE).ok().and_then(|name| Self::named(&name)).unwrap_or(Self::Fatal)
    }
}

process_local! {
    static USER: HandleTable<Errhandler> = HandleTable::new();
    /// Function that is called if [`Errhandler::Exceptions`] is the error handler.
    static ON_EXCEPTION: OnceLock<UserFunction> = OnceLock::new();
}

/// Sets the function that is called if `MPI::ERRORS_THROW_EXCEPTIONS` is the error handler. Only the first call has an
/// effect.
pub fn on_exception(function: UserFunction) {
    ON_EXCEPTION.get_or_init(|| function);
}

/// Changes the function of an error handler of the program, for objects on which it is set from now on.
pub fn change_function(handle: ErrhandlerHandle, change: impl FnOnce(UserFunction) -> UserFunction) {
    USER.replace(handle.0, |errhandler| match errhandler {
        Errhandler::User(user) => {
            let held = *user.held.lock().unwrap_or_else(PoisonError::into_inner);
            Errhandler::User(UserErrhandler {
                kind: user.kind,
                function: change(user.function),
                held: Mutex::new(held),
            })
        }
        predefined => unreachable!("{predefined:?} is in no table"),
    });
}

/// A new error handler that calls `function`.
pub fn create(kind: ErrhandlerKind, function: UserFunction) -> ErrhandlerHandle {
    let user = UserErrhandler { kind, function, held: Mutex::new((0, 0)) };
    handle_of(&Arc::new(Errhandler::User(user)))
}

/// The handle of an error handler, which the program has to free once more.
pub fn handle_of(errhandler: &Arc<Errhandler>) -> ErrhandlerHandle {
    match &**errhandler {
        Errhandler::Fatal => ErrhandlerHandle::ERRORS_ARE_FATAL,
        Errhandler::Abort => ErrhandlerHandle::ERRORS_ABORT,
        Errhandler::Return => ErrhandlerHandle::ERRORS_RETURN,
        Errhandler::Exceptions => ErrhandlerHandle::ERRORS_THROW_EXCEPTIONS,
        Errhandler::User(user) => {
            let mut held = user.held.lock().unwrap_or_else(PoisonError::into_inner);
            if held.1 == 0 {
                held.0 = USER.insert(Arc::clone(errhandler));
            }
            held.1 += 1;
            ErrhandlerHandle(held.0)
        }
    }
}

/// The error handler behind a handle.
///
/// # Errors
/// `MPI_ERR_ERRHANDLER` when none exists, or it is not for objects of this kind.
pub fn resolve(handle: ErrhandlerHandle, kind: ErrhandlerKind) -> Result<Arc<Errhandler>> {
    let errhandler = find(handle)?;
    match &*errhandler {
        Errhandler::User(user) if user.kind != kind => {
            redrt_abi::fail!(MPI_ERR_ERRHANDLER, "the error handler is for a {:?}, not for a {kind:?}", user.kind)
        }
        _ => Ok(errhandler),
    }
}

fn find(handle: ErrhandlerHandle) -> Result<Arc<Errhandler>> {
    match handle {
        ErrhandlerHandle::ERRORS_ARE_FATAL => Ok(Arc::new(Errhandler::Fatal)),
        ErrhandlerHandle::ERRORS_ABORT => Ok(Arc::new(Errhandler::Abort)),
        ErrhandlerHandle::ERRORS_RETURN => Ok(Arc::new(Errhandler::Return)),
        ErrhandlerHandle::ERRORS_THROW_EXCEPTIONS => Ok(Arc::new(Errhandler::Exceptions)),
        _ => USER.get(handle.0).ok_or_else(|| Error::new(MPI_ERR_ERRHANDLER, "not a valid error handler")),
    }
}

/// Frees one reference of the program; objects that use the error handler keep it.
///
/// # Errors
/// `MPI_ERR_ERRHANDLER` when none exists.
pub fn free(handle: ErrhandlerHandle) -> Result {
    if let Errhandler::User(user) = &*find(handle)? {
        let mut held = user.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.1 = held.1.saturating_sub(1);
        if held.1 == 0 {
            USER.remove(handle.0);
        }
    }
    Ok(())
}

/// Invokes the error handler for an error in `function`. Returns the function's result, if the handler returns.
#[cold]
pub fn raise(function: &str, error: Error, scope: Scope) -> c_int {
    let scope = error.scope_or(scope);
    let code = error.code();
    let errhandler = of_scope(scope);
    if error.is_unsupported() && !matches!(*errhandler, Errhandler::Fatal | Errhandler::Abort) {
        host::get().unsupported(function, error.message());
    }
    match &*errhandler {
        Errhandler::Return => code,
        Errhandler::Fatal | Errhandler::Abort => {
            let host = host::get();
            host.report(&format!("{}: {function}: {}", host.identity(), error_codes::described(&error)));
            host.abort(scope, code)
        }
        Errhandler::User(user) => user.call(scope, code),
        Errhandler::Exceptions => match ON_EXCEPTION.get() {
            Some(function) => callbacks::call_errhandler(*function, subject(scope), code),
            None => code,
        },
    }
}

/// Reports a call of the function before `MPI_Init` or after `MPI_Finalize`.
#[cold]
pub fn inactive(function: &str) -> c_int {
    let when = if redrt_abi::phase::is_finalized() { "after MPI_Finalize" } else { "before MPI_Init" };
    raise(function, Error::new(MPI_ERR_OTHER, format!("called {when}")), Scope::Default)
}

/// The error handler for an error in a call with this scope.
#[must_use]
pub fn of_scope(scope: Scope) -> Arc<Errhandler> {
    let host = host::get();
    let attached = match scope {
        Scope::Default => None,
        // MPI-5.0 section 14.7: calls without a valid file use the handler of MPI_FILE_NULL, which is MPI_ERRORS_RETURN
        // at first.
        Scope::File(_) => match host.attached(scope).or_else(|| host.attached(Scope::File(FileHandle::NULL))) {
            Some(attached) => Some(attached),
            None => return Arc::new(Errhandler::Return),
        },
        other => host.attached(other),
    };
    if let Some(attached) = attached {
        return attached.errhandler();
    }
    // Section 9.3: errors not related to an object are raised on MPI_COMM_SELF. Before MPI-4.0 it was MPI_COMM_WORLD,
    // and programs of that time set its handler alone.
    let handler = |comm| host.attached(Scope::Comm(comm)).map(|attached| attached.errhandler());
    let is_own = |handler: &Arc<Errhandler>| !matches!(**handler, Errhandler::Fatal);
    let mut handlers = [CommHandle::SELF, CommHandle::WORLD].into_iter().filter_map(handler);
    handlers.find(is_own).unwrap_or_else(|| Arc::new(Errhandler::Fatal))
}
