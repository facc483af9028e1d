//! Errors on their way from an implementation to the program's error handler, which `redrt-comm` calls.

use crate::handle::{CommHandle, FileHandle, SessionHandle, WinHandle};
use crate::{MPI_ERR_ARG, MPI_ERR_CONVERSION, MPI_ERR_TRUNCATE};
use std::borrow::Cow;
use std::ffi::c_int;
use std::fmt;

/// The result of an MPI function.
pub type Result<T = ()> = std::result::Result<T, Error>;

/// Failure of an MPI function: an error code, mostly a class, and a sentence for the user. Boxed, so that the
/// successful path returns in one register.
#[derive(Debug)]
pub struct Error(Box<Detail>);

#[derive(Debug)]
struct Detail {
    code: c_int,
    message: Cow<'static, str>,
    scope: Option<Scope>,
    is_unsupported: bool,
}

impl Error {
    /// An error of class or code `code`. The message names the wrong value and the reason; the function's name is added
    /// later.
    #[must_use]
    #[cold]
    pub fn new(code: c_int, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Detail { code, message: message.into(), scope: None, is_unsupported: false }))
    }

    /// An error of a call that cannot be served in this job, and could be in another kind of job, which the message
    /// names. The message is shown to the user however the program handles the error.
    #[must_use]
    #[cold]
    pub fn unsupported(code: c_int, message: &'static str) -> Self {
        Self(Box::new(Detail { code, message: message.into(), scope: None, is_unsupported: true }))
    }

    /// Returns true if the call could be served in another job.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        self.0.is_unsupported
    }

    /// Uses the error handler of `scope` in place of that of the function's arguments: a request knows its
    /// communicator.
    #[must_use]
    pub fn in_scope(mut self, scope: Scope) -> Self {
        self.0.scope.get_or_insert(scope);
        self
    }

    /// The scope whose error handler is invoked: the error's own, else that of the function's arguments.
    #[must_use]
    pub fn scope_or(&self, of_arguments: Scope) -> Scope {
        self.0.scope.unwrap_or(of_arguments)
    }

    /// The error code that the program sees.
    #[must_use]
    pub fn code(&self) -> c_int {
        self.0.code
    }

    /// The sentence for the user.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Error {}

impl From<redrt_datatype::Error> for Error {
    #[cold]
    fn from(error: redrt_datatype::Error) -> Self {
        use redrt_datatype::Error as E;
        let class = match error {
            E::TooLarge
            | E::OutsideArray { .. }
            | E::Grid { .. }
            | E::OutsideGrid { .. }
            | E::Length { .. }
            | E::BlockLength { .. }
            | E::Undistributed { .. }
            | E::Uncovered { .. } => MPI_ERR_ARG,
            E::Conversion { .. } => MPI_ERR_CONVERSION,
            E::Truncated => MPI_ERR_TRUNCATE,
        };
        Self::new(class, error.to_string())
    }
}

/// `fail!(MPI_ERR_COUNT, "count is {count}")` returns the error from the enclosing function.
#[macro_export]
macro_rules! fail {
    ($code:expr, $($message:tt)*) => {
        return Err($crate::error::Error::new($code, format!($($message)*)))
    };
}

/// Object whose error handler deals with an error (MPI-5.0 section 9.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// No object: `MPI_COMM_SELF`; `MPI_COMM_WORLD` if the program has set a handler there and none on `MPI_COMM_SELF`;
    /// before `MPI_Init` the initial error handler.
    Default,
    /// Handler of this communicator.
    Comm(CommHandle),
    /// Handler of this window.
    Win(WinHandle),
    /// A file; without one, the handler of `MPI_FILE_NULL`.
    File(FileHandle),
    /// Handler of this session.
    Session(SessionHandle),
}
