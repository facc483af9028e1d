//! Checks of arguments that several modules share.

use redrt_abi::MPI_ERR_COUNT;
use redrt_abi::error::{Result, Scope};
use redrt_abi::fail;
use redrt_abi::handle::Held;
use redrt_comm::comm;
use redrt_comm::comm::check::call::Call;
use redrt_comm::comm::check::{blocking, is_on};
use redrt_files::file;
use redrt_window as window;

/// Checks that a count of elements is not negative.
pub(crate) fn check_count(count: i64) -> Result<i64> {
    if count < 0 {
        fail!(MPI_ERR_COUNT, "the count is {count}");
    }
    Ok(count)
}

/// Under `redrun --check-collectives`, checks that all members of a communicator, window or file call this collective.
/// Arguments are not compared.
#[inline]
pub(crate) fn check_function(function: &str, scope: Scope) -> Result {
    if is_on() { compare_function(function, scope) } else { Ok(()) }
}

fn compare_function(function: &str, scope: Scope) -> Result {
    let comm = match scope {
        Scope::Comm(handle) => comm::resolve(handle).map(Held::shared),
        Scope::Win(handle) => window::resolve(handle).map(|window| window.comm.clone()),
        Scope::File(handle) => file::resolve(handle).map(|file| file.comm.clone()),
        Scope::Default | Scope::Session(_) => return Ok(()),
    };
    // The function itself reports a handle that is not valid.
    let Ok(comm) = comm else { return Ok(()) };
    blocking(&comm, Call { function: function.to_owned(), ..Call::default() })
}
